"""A chat request in no dialect: what all dialects are turned into, and the events that all are turned out of.

That there is one path is why the dialects agree: the same request gives the same tokens, the same usage and the same
end, streamed or not, whichever API asked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from llamay_models.answers import THINK, Event, Finished, Reader, begins_thought, format_of
from llamay_server.chat.tools import Toolbox
from llamay_server.engine.formats import envelope, prepared, reader, reasoning_of
from llamay_server.engine.protocol import Context, Model, Progress, Prompt, PromptTooLong
from llamay_server.http.answers import release
from llamay_server.http.errors import invalid
from llamay_server.pipeline.run import Delta, Reading, Run, Spec, Totals, read_watched, reading_tenant
from llamay_server.pipeline.sampling import Bound

if TYPE_CHECKING:
    from llamay_server.http.call import Call
    from llamay_server.pipeline.run import Admission

Message = dict[str, Any]
# What a client may hand to a template. Everything else a template reads is the server's own to set (J-08).
TEMPLATE_OPTIONS = frozenset(
    ("enable_thinking", "thinking", "reasoning_effort", "thinking_budget", "date_string", "documents")
)


@dataclass(slots=True)
class ChatRequest:
    """One chat request, validated and in one form.

    Messages hold role, content (text or None), and where they have them reasoning_content, tool_calls (with
    arguments as objects), tool_call_id and name.
    """

    messages: list[Message]
    sampling: dict[str, Any]
    box: Toolbox = field(default_factory=Toolbox)
    bound: Bound | None = None
    n: int = 1
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    logprobs: int | None = None
    ignore_eos: bool = False
    reuse: bool = True
    tenant: str = ""
    priority: int = 0
    timeout: float | None = None
    continue_final: bool = False
    open_turn: bool = True
    """Begin the assistant's turn at the end of the prompt."""
    think: bool | None = None
    think_budget: int | None = None
    """Tokens after which reasoning is ended for the model, so that it answers."""
    template: dict[str, Any] = field(default_factory=dict)
    progress: bool = False
    """Tell how far the prompt is read."""
    bind_calls: bool = False
    """Bind optional calls, too, in their form."""
    in_parts: bool = False
    """Tell the arguments of calls while they are written, where a grammar makes sure of them."""
    shorten: bool = False
    """Drop the oldest turns of a conversation that does not fit, and say so."""

    def bound_in(self, form: str, thoughts: tuple[str, str, bool] | None = None) -> Bound | None:
        """What the output must match, its calls in the format `form`; as `Toolbox.bound` tells it."""
        # Free text beside calls that are bound has no room for those that the model writes in a way of its own.
        optional = self.bind_calls and envelope(form).own is None
        return self.box.bound(form, self.bound, thoughts=thoughts, optional=optional)


@dataclass(slots=True)
class Rendered:
    """A prompt with what the output parser must know of its end."""

    prompt: Prompt
    in_thought: bool = False
    """Whether the prompt ends with the mark that opens a thought."""
    prompted: bool = False
    """Whether it ends with what the model's format begins every answer with."""
    dropped: int = 0


def render(model: Model, request: ChatRequest) -> Rendered:
    """The prompt of a request. Raises a 400 where template and request do not fit each other."""
    messages, box = request.messages, request.box
    if not messages:
        raise invalid("messages: it is empty; send at least one message", "messages")
    options = dict(request.template)
    if request.think is not None:
        options["enable_thinking"] = request.think
    template = model.info.chat_template
    turns, tools = prepared(
        messages,
        [tool.as_openai() for tool in box.tools],
        template,
        takes_tools=model.info.template_takes_tools,
        offered=box.mode != "none",
    )
    prompt = model.render(
        turns,
        tools=tools,
        add_generation_prompt=request.open_turn and not request.continue_final,
        continue_final=request.continue_final,
        options=options,
    )
    marks, known = reasoning_of(template), envelope(format_of(template))
    return Rendered(
        prompt,
        in_thought=begins_thought(prompt.text, marks),
        prompted=bool(known.prompted) and prompt.text.endswith(known.prompted),
    )


def fit(model: Model, request: ChatRequest) -> Rendered:
    """`render`, dropping the oldest turns where the request allows it; the system message and the last turn stay."""
    limit = model.info.context_length
    rendered = render(model, request)
    dropped = 0
    while len(rendered.prompt.tokens) >= limit:
        turns = [i for i, m in enumerate(request.messages) if m["role"] != "system"]
        if not request.shorten or len(turns) < 2:
            raise PromptTooLong(len(rendered.prompt.tokens), limit)
        # Half of what is over at a time keeps this a handful of renders for a conversation of any length.
        over = len(rendered.prompt.tokens) - limit
        share = max(1, min(len(turns) - 1, over * len(turns) // (2 * len(rendered.prompt.tokens))))
        gone = set(turns[:share])
        rest = [m for i, m in enumerate(request.messages) if i not in gone]
        while len(rest) > 1 and rest[0]["role"] == "tool":
            rest.pop(0)
        dropped += len(request.messages) - len(rest)
        request.messages = rest
        rendered = render(model, request)
    rendered.dropped = dropped
    return rendered


@dataclass(frozen=True, slots=True)
class Framing:
    """How the output of a request is bound, and how it is taken apart."""

    box: Toolbox
    form: str
    marks: tuple[str, str]
    bound: Bound | None
    special: tuple[str, ...]
    thinks: bool
    in_thought: bool
    prompted: bool
    known_ids: frozenset[str]
    in_parts: bool

    @classmethod
    def of(
        cls, request: ChatRequest, rendered: Rendered, form: str, marks: tuple[str, str] | None
    ) -> Framing:
        """Of a request whose prompt is there; `marks`: those of the model's thoughts."""
        known = envelope(form)
        # A template may open a thought whether it was asked to or not.
        wanted = marks is not None and (rendered.in_thought or request.think is not False)
        thoughts = (*marks, rendered.in_thought) if marks is not None and wanted else None
        bound = request.bound_in(form, thoughts)
        # Expressions and grammars bind the output from its first character on.
        free = bound is None or bound.kind in ("tools", "after_thoughts")
        return cls(
            box=request.box,
            form=form,
            marks=marks or THINK,
            bound=bound,
            special=known.visible(marks, calls=request.box.active),
            thinks=marks is not None and free,
            in_thought=rendered.in_thought and free,
            prompted=rendered.prompted and (bound is None or bound.kind == "tools"),
            known_ids=frozenset(
                call.get("id") or "" for m in request.messages for call in m.get("tool_calls") or ()
            ),
            in_parts=request.in_parts and bound is not None and bound.kind == "tools",
        )

    def parser(self, index: int) -> Reader:
        """What takes the text of one choice apart."""
        return reader(
            self.box,
            form=self.form,
            index=index,
            thinks=self.thinks,
            in_thought=self.in_thought,
            reasoning=self.marks,
            prompted=self.prompted,
            known_ids=self.known_ids,
            bound=self.in_parts,
        )


class ChatRun:
    """A chat request on its way: prompt, generations, and the events they give."""

    def __init__(self, model: Model, request: ChatRequest, call: Call, admission: Admission) -> None:
        self.model, self.request, self.call, self.admission = model, request, call, admission
        self.totals = Totals()
        self.rendered: Rendered | None = None
        self.run: Run | None = None
        self.resume: Context | None = None
        """A computed conversation that this one may go on from; it is forked, never changed."""
        self.keep_context = False
        self._context: Context | None = None
        self.parsers: list[Reader] = []
        self._shape: Callable[[Event], bytes] | None = None

    def shape(self, shape: Callable[[Event], bytes]) -> None:
        """Say how a stream writes an event, as with `Run.shape`."""
        self._shape = shape

    async def prepare(self) -> Rendered:
        """Render the prompt, off the loop: a template or a tokenizer may take its time."""
        if self.rendered is None:
            self.rendered = await asyncio.to_thread(fit, self.model, self.request)
            if self.rendered.dropped:
                self.admission.metrics.truncated.labels(self.model.info.name).inc()
                self.call.notes["x-llamay-truncated"] = str(self.rendered.dropped)
            self.totals.prompt_tokens = 0
        return self.rendered

    def events(self) -> AsyncGenerator[Event, None]:
        """`steps` of a request that does not ask for progress."""
        return cast("AsyncGenerator[Event, None]", self.steps())

    async def steps(self) -> AsyncGenerator[Event | Reading, None]:
        """Parsed events of all choices; each ends with `Finished`."""
        request, rendered = self.request, await self.prepare()
        template = self.model.info.chat_template
        form = format_of(template)
        framing = Framing.of(request, rendered, form, reasoning_of(template))
        spec = Spec(
            prompt=rendered.prompt.tokens,
            sampling=request.sampling,
            n=request.n,
            max_tokens=request.max_tokens,
            stop=request.stop,
            include_stop=request.include_stop,
            bound=framing.bound,
            special=framing.special,
            ignore_eos=request.ignore_eos,
            logprobs=request.logprobs,
            reuse=request.reuse,
            tenant=request.tenant,
            priority=request.priority,
            timeout=request.timeout,
            progress=request.progress,
        )
        if self.keep_context or self.resume is not None:
            async with contextlib.aclosing(self._take_up(rendered.prompt.tokens, spec)) as readings:
                async for reading in readings:
                    if request.progress:
                        yield reading
            assert self._context is not None
            spec.prompt = self._context
            spec.contexts = [self._context] if request.n == 1 else self._context.fork(request.n)
        self.parsers = [framing.parser(i) for i in range(request.n)]
        if request.think_budget is not None:
            rest = replace(spec, bound=request.bound_in(form))
            async with contextlib.aclosing(
                self._thinking_within(request.think_budget, spec, rest, framing.marks)
            ) as thinking:
                async for item in thinking:
                    yield item
            return
        run = self.run = Run(self.model, spec, self.call, self.admission, self.totals)
        if (shape := self._shape) is not None:
            feed = self.parsers[0].feed
            run.shape(lambda delta: b"".join(map(shape, feed(delta.text, delta.scores, delta.tokens))))
        done = False
        try:
            async with contextlib.aclosing(self._parsed(run)) as parsed:
                async for step in parsed:
                    yield step
            done = True
        finally:
            if request.n > 1:
                for branch in spec.contexts or ():
                    release(branch)
            if not (done and self.keep_context) and (context := self.take_context()) is not None:
                release(context)

    async def _parsed(self, run: Run) -> AsyncGenerator[Event | Reading, None]:
        async with contextlib.aclosing(run.steps()) as events:
            async for event in events:
                if isinstance(event, Reading):
                    yield event
                    continue
                parser = self.parsers[event.index]
                if isinstance(event, Delta):
                    parsed = parser.feed(event.text, event.scores, event.tokens)
                else:
                    parsed = parser.finish(event.reason, event.stop_sequence)
                for item in parsed:
                    if isinstance(item, Finished):
                        self.totals.reasoning_tokens += parser.reasoning_tokens
                    yield item

    async def _take_up(self, tokens: list[int], spec: Spec) -> AsyncGenerator[Reading, None]:
        """Make a context of the prompt, from the one to resume as far as they agree, and note how far that is."""
        self.call.phase = "prefill"
        base = self.resume
        held = list(base.tokens) if base is not None else []
        same = min(common(held, tokens), len(tokens) - 1)
        tenant = reading_tenant(self.request.tenant, reuse=self.request.reuse)
        if base is None or same == 0:
            made: list[Context] = []

            def begin(progress: Progress) -> Context:
                return self.model.context(tokens, tenant=tenant, progress=progress)

            async with contextlib.aclosing(read_watched(begin, made, len(tokens))) as readings:
                async for reading in readings:
                    yield reading
            self._context = made[0]
            spec.cached = made[0].cached_tokens
            return
        fork = base.fork(1)[0]
        try:

            def read(progress: Progress) -> None:
                if same < len(held):
                    fork.truncate(same)
                fork.extend(tokens[same:], progress=progress)

            async with contextlib.aclosing(read_watched(read, [], len(tokens), held=same)) as readings:
                async for reading in readings:
                    yield reading
        except BaseException:
            release(fork)
            raise
        self._context = fork
        spec.cached = same

    def take_context(self) -> Context | None:
        """The context that holds prompt and answer, once; whoever takes it closes it."""
        context, self._context = self._context, None
        return context

    async def _thinking_within(
        self, budget: int, spec: Spec, rest: Spec, marks: tuple[str, str]
    ) -> AsyncGenerator[Event, None]:
        """One choice whose reasoning is closed after `budget` tokens: the answer, `rest`, goes on from there."""
        parser = self.parsers[0]
        run = self.run = Run(self.model, spec, self.call, self.admission, self.totals)
        written: list[int] = []
        async with contextlib.aclosing(run.events()) as events:
            async for event in events:
                if isinstance(event, Delta):
                    written += event.tokens
                    parsed = parser.feed(event.text, event.scores, event.tokens)
                else:
                    self.totals.reasoning_tokens = parser.reasoning_tokens
                    parsed = parser.finish(event.reason, event.stop_sequence)
                for item in parsed:
                    yield item
                if not (parser.thinking and len(written) >= budget and isinstance(event, Delta)):
                    continue
                break
            else:
                return
        first = run.settle()
        end = f"\n{marks[1]}\n\n"
        for item in parser.feed(end):
            yield item
        closing = self.model.encode(end, add_special=False, parse_special=True)
        left = None if spec.max_tokens is None else spec.max_tokens - len(written)
        if left is not None and left <= 0:
            for item in parser.finish("length", None):
                yield item
            return
        tokens = [*self.rendered.prompt.tokens, *written, *closing] if self.rendered else []
        rest = replace(rest, prompt=tokens, max_tokens=left)
        totals = Totals()
        async with contextlib.aclosing(
            Run(self.model, rest, self.call, self.admission, totals).events()
        ) as events:
            async for event in events:
                if isinstance(event, Delta):
                    parsed = parser.feed(event.text, event.scores, event.tokens)
                else:
                    self.totals.reasoning_tokens = parser.reasoning_tokens
                    parsed = parser.finish(event.reason, event.stop_sequence)
                for item in parsed:
                    yield item
        self.totals.prompt_tokens, self.totals.cached_tokens = first.prompt_tokens, first.cached_tokens
        self.totals.completion_tokens = len(written) + totals.completion_tokens
        self.totals.decode += totals.prefill + totals.decode

    def prompt_usage(self) -> tuple[int, int]:
        """Tokens of the prompt, and those of them found computed; known from the first event on."""
        if self.totals.prompt_tokens:
            return self.totals.prompt_tokens, self.totals.cached_tokens
        prompt = len(self.rendered.prompt.tokens) if self.rendered is not None else 0
        return prompt, self.run.cached_tokens() if self.run is not None else 0

    def context_full(self) -> bool:
        """Whether the context rather than the client's limit ended it."""
        used = self.totals.prompt_tokens + self.totals.completion_tokens
        limit = self.request.max_tokens
        full = used >= self.model.info.context_length
        return full and (limit is None or self.totals.completion_tokens < limit)


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two sequences begin with alike."""
    n = min(len(a), len(b))
    if list(a[:n]) == list(b[:n]):
        return n
    return next(i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)


def template_options(value: Mapping[str, Any] | None, where: str = "chat_template_kwargs") -> dict[str, Any]:
    """Client options for the template: an allow-list, since a template must not see its own inputs replaced."""
    for key in value or ():
        if key not in TEMPLATE_OPTIONS:
            allowed = ", ".join(sorted(TEMPLATE_OPTIONS))
            raise invalid(
                f"{where}.{key[:60]}: it cannot be set; allowed are {allowed}", f"{where}.{key[:60]}"
            )
    return dict(value or {})
