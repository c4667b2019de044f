"""`Model`: a loaded model."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Self

import llamay_kv as kv
from llamay_models.arguments import text as _text
from llamay_models.arguments import whole_numbers
from llamay_models.engine import Context, Engine, Progress, Runner
from llamay_models.engine.contexts.protocols import OpenContext
from llamay_models.engine.passes.pass_runner import PassRunner
from llamay_models.engine.passes.text_pass import PassKind
from llamay_models.engine.requests.token_constraint import TokenConstraint
from llamay_models.engine.state.context_state import State
from llamay_models.engine.state.prefix_cache import PrefixCache
from llamay_models.errors import ContextError, EngineClosedError, PromptError
from llamay_models.model.parts import Parts
from llamay_models.plan import Floats, Program, hidden, inputs, whole_text

if TYPE_CHECKING:
    from llamay_models.adapters import Adapter, AdapterLike
    from llamay_models.chat import ChatTemplate
    from llamay_models.embedding import Pooling
    from llamay_models.scoring import Score
    from llamay_models.tokenizer import Tokenizer


class Model:
    """A loaded model. `llamay_models.load` makes one; closing it frees its weights, its K/V and its thread.

    Attributes:
        path, name, architecture, metadata: of the file. The metadata lack the vocabulary.
        config: the architecture's hyper-parameters.
        tokenizer: the tokenizer; None for a file without one.
        engine: the engine that runs everything; `engine.submit` takes a `Request`.
        context_size: the most tokens that a context may have here; `context_length` is the number that the model was
            trained for.
        pool: the pool whose pages hold the K/V of all contexts.
        writes: whether the model writes text. An encoder makes embeddings only, of texts that are one step each.
        pools: the pooling that is part of an encoder's plan, as its file names it; None where the plan has none.
        rank_head: the head of a reranker, which turns a state into a score; None in other models.
        pass_runner: computes hidden states and logits of whole texts beside generations, for embeddings and scores.
        backend: the backend that computes.
        threads: the number of threads that compute.
        n_parameters: the number of values in the weights; a tied table counts once.
        nbytes: the bytes that the weights take in memory.

    """

    def __init__(self, parts: Parts) -> None:
        self._parts: Parts | None = parts
        self.path = parts.path
        self.name = parts.name
        self.architecture = parts.architecture
        self.config = parts.config
        self.metadata = parts.metadata
        self.tokenizer = parts.tokenizer
        self.context_size = parts.ctx_size
        self.pool = parts.pool
        self.backend = parts.backend
        self.threads = int(parts.threads.n)
        self.n_parameters = sum(t.rows * t.cols for t in parts.program.tensors)
        self.nbytes = sum(int(w.nbytes) for w in parts.weights)
        self._contexts: weakref.WeakSet[OpenContext] = weakref.WeakSet()
        self._lock = threading.Lock()
        self.writes = parts.config.output == "logits"
        self.pools: str | None = getattr(parts.config, "pooling", None)
        self._sha256: str | None = None
        self._template: ChatTemplate | None = None
        self._pass_runners: dict[PassKind, Runner] = {}
        prefixes = None
        if parts.prefix_cache or parts.disk_cache is not None:
            # Weak: the engine must not keep this object alive.
            prefixes = PrefixCache(
                parts.pool,
                parts.prefix_cache,
                parts.disk_cache,
                partial(_identity, weakref.ref(self)),
                owns_disk=parts.owns_disk,
            )
        self.engine: Engine = Engine(
            Runner(parts.backend, parts.plan, parts.threads),
            parts.pool,
            parts.tokenizer,
            parts.ctx_size,
            parts.max_sequences,
            parts.name,
            prefixes,
            reads=inputs(parts.program),
            writes=self.writes,
            whole_text=whole_text(parts.program),
            max_queue=parts.max_queue,
            speculation=parts.speculation,
            draft=None if parts.draft is None else parts.draft.engine,
            stall=parts.stall,
        )
        # The engine's thread does not refer to this object: dropping the object, or leaving Python, ends the thread.
        weakref.finalize(self, self.engine.close)
        self.rank_head = parts.rank_head
        self.pass_runner = PassRunner(self.engine, partial(_runner, self.engine, weakref.ref(self)))

    # -- properties

    @property
    def vocab_size(self) -> int:
        """The number of tokens of the vocabulary."""
        return self.config.vocab

    @property
    def context_length(self) -> int:
        """The number of tokens of a context that the model was trained for."""
        return self.config.context_length

    @property
    def embedding_length(self) -> int:
        """The number of values of a token between the layers."""
        return self.config.width

    @property
    def program(self) -> Program:
        """The fused plan; `print(explain(model.program))` shows it."""
        return self._opened().program

    @property
    def adapters(self) -> tuple[Adapter, ...]:
        """The LoRA adapters in use, in the order in which they are added."""
        return self._opened().adapters

    @property
    def idle(self) -> bool:
        """Whether nothing runs or waits here, and no context is open."""
        busy = self.engine.active or self.engine.queued
        return not busy and all(context.closed for context in list(self._contexts))

    def adapted(self, adapters: Iterable[AdapterLike], *, kv_budget: int | None = None) -> Model:
        """Return another model over the same weights, with these LoRA adapters instead of this model's.

        An adapter is a GGUF file or a pair of file and scale; several are added up in their order. The other model
        takes memory for the adapters and for `kv_budget` bytes of K/V, by default as many as here. Contexts of one are
        not contexts of the other, nor are their snapshots or prefixes. Close it like any model; either may be closed
        first. Raises ModelError naming the file that does not fit, OSError, ValueError for a scale that is no number.
        """
        from llamay_models.adapters import with_adapters

        return with_adapters(self, self._opened(), adapters, kv_budget)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the file, or of all parts of a split one, in hexadecimal.

        The file is hashed once, when this is first asked for, so that loading does not wait for it.
        """
        with self._lock:
            if self._sha256 is None:
                self._sha256 = self._opened().sha256()
            return self._sha256

    @property
    def chat_template(self) -> ChatTemplate | None:
        """The chat template of the file; None without one. Raises ChatTemplateError if it cannot be parsed."""
        source = self.metadata.get("tokenizer.chat_template")
        if self._template is None and isinstance(source, str) and self.tokenizer is not None:
            from llamay_models.chat import (
                ChatTemplate,
            )  # Jinja takes as long to import as a small model to load

            self._template = ChatTemplate.from_metadata(self.metadata, self.tokenizer)
        return self._template

    def use_template(self, source: str) -> None:
        """Write conversations with this template, Jinja or Ollama's Go, instead of the file's.

        Raises ChatTemplateError for one that cannot be used, and PromptError where there is no tokenizer.
        """
        from llamay_models.chat import ChatTemplate, as_jinja

        words = self._tokenizer()
        spelled = {
            role: words.token_text(token)
            for role in ("bos", "eos")
            if (token := getattr(words, role)) is not None
        }
        self._template = ChatTemplate(as_jinja(source), **spelled)

    # -- text and tokens

    def encode(
        self,
        text: str,
        *,
        add_special: bool = True,
        parse_special: bool = False,
        continuation: bool = False,
    ) -> list[int]:
        """Return the token ids of a text.

        `add_special` adds the tokens that the model wants at the beginning; control tokens written out in the text
        count as such only with `parse_special`. A `continuation` continues other text: nothing is put before it,
        neither a beginning token nor the space that SentencePiece vocabularies begin a text with. Raises PromptError
        for what is no text.
        """
        text = _text("text", text, error=PromptError)
        ids = self._tokenizer().encode(
            text, add_special=add_special, parse_special=parse_special, continuation=continuation
        )
        return list(ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of token ids. Bytes that make no character become U+FFFD; numbers below zero are skipped.

        Raises PromptError for what is no sequence of token ids of this model.
        """
        ids = whole_numbers("decode takes a sequence of token ids", tokens, error=PromptError)
        words = self._tokenizer()
        if ids.size and ids.max() >= words.vocab_size:
            raise PromptError(f"token {ids.max()} is outside the vocabulary of {words.vocab_size}")
        return words.decode(ids[ids >= 0])

    # -- contexts

    def context(
        self,
        prompt: str | Sequence[int] | None = None,
        *,
        messages: Sequence[Mapping[str, Any]] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        parse_special: bool = False,
        tenant: str = "",
        progress: Progress | None = None,
    ) -> Context:
        """Return a context with the computed prompt; without a prompt, an empty one.

        The prompt is text, token ids, or `messages`, which the model's chat template writes out up to
        where the answer begins. Names of control tokens in text count as such only with `parse_special`.
        Prefixes that were computed for the same tenant, or for none, are not computed again.
        Blocks during the prefill. Raises PromptError, PromptTooLongError, OutOfMemoryError,
        EncoderOnlyError.
        """
        self.engine.check_writes()
        if prompt is not None and messages is not None:
            raise PromptError("a context is made of a prompt or of messages, not of both")
        if messages is not None:
            prompt = self.render(messages, tools=tools)
        elif isinstance(prompt, str):
            prompt = self.encode(prompt, parse_special=parse_special)
        tenant = _text("tenant", tenant, error=PromptError)
        context = Context(self, State(self.pool.context(), tenant))
        if prompt is not None:
            try:
                context.extend(prompt, progress=progress)
            except BaseException:
                context.close()
                raise
        return context

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **options: Any,
    ) -> list[int]:
        """Return the tokens of a conversation; the text of its messages never becomes control tokens.

        Raises PromptError without a template.
        """
        template = self.chat_template
        if template is None:
            raise PromptError(f"{self.name} has no chat template; give the prompt as text or tokens")
        return list(
            template.tokenize(
                self._tokenizer(),
                messages,
                tools=tools,
                add_generation_prompt=add_generation_prompt,
                **options,
            )
        )

    def constraint(
        self,
        *,
        schema: Mapping[str, Any] | bool | str | None = None,
        regex: str | None = None,
        grammar: str | None = None,
    ) -> TokenConstraint:
        """Return a constraint that keeps a text to a JSON schema, a regex or a grammar, for `generate`.

        Raises ValueError unless exactly one of them is given, the error of the grammar compiler for one that it
        refuses, and InterfaceError where there is no compiler (`import llamay` brings one).
        """
        from llamay_models.constraints import compile_constraint, compiler

        made = compile_constraint(self, compiler(), schema=schema, regex=regex, grammar=grammar)
        matcher: TokenConstraint = made.matcher()
        return matcher

    # -- embeddings, ranks and scores

    def embed(
        self,
        texts: str | Sequence[str] | Sequence[Sequence[int]],
        pooling: Pooling | None = None,
        *,
        normalize: bool = True,
        dimensions: int | None = None,
        tenant: str | None = "",
        progress: Progress | None = None,
    ) -> Floats:
        """Return an embedding of each text, text or token ids: float32 (n, dimensions).

        Blocks. `pooling` is "mean", "last" or "cls" (the first token); None takes the one that the file names,
        else the last of a decoder and the mean of an encoder. `normalize` gives each length 1.
        `dimensions` keeps the first so many, for models
        that were trained for it (Kusupati et al. 2022, https://arxiv.org/abs/2205.13147). Texts of all
        callers are computed in one batch, and are the same bit for bit as alone. Prefixes of the
        `tenant`, or of none, are not computed again, and this text is added to them; with a tenant of None nothing is
        reused or kept. Raises PromptError for an empty text, PromptTooLongError, OutOfMemoryError; ValueError for an
        argument out of range.
        """
        from llamay_models.embedding import embed

        return embed(
            self, texts, pooling, normalize=normalize, dimensions=dimensions, tenant=tenant, progress=progress
        )

    def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        tenant: str | None = "",
        progress: Progress | None = None,
    ) -> Floats:
        """Return how well each document answers the query, the higher the better: float32 (n,).

        With a rank head of the file this is its logit, or the probability of the first class (`yes`) of several;
        without one the cosine of the two embeddings, from -1 to 1. Blocks. `tenant` and the raised errors are those of
        `embed`.
        """
        from llamay_models.embedding import rerank

        return rerank(self, query, documents, tenant=tenant, progress=progress)

    def score(
        self,
        text: str | Sequence[int],
        *,
        given: str | Sequence[int] = (),
        top: int = 0,
        tenant: str | None = "",
        progress: Progress | None = None,
    ) -> Score:
        """Return the probability of each token of a text, after the text `given`.

        Blocks. Without a given text the first token has no probability, since no token precedes it. `top` adds the
        likeliest tokens of each place; `tenant` is that of `embed`. Raises
        PromptError, PromptTooLongError, OutOfMemoryError,
        EncoderOnlyError.
        """
        from llamay_models.scoring import score

        return score(self, text, given=given, top=top, tenant=tenant, progress=progress)

    def restore(
        self,
        path: str | PathLike[str],
        *,
        keys: kv.Key | Iterable[kv.Key] | None = None,
        owner: str | None = None,
        markings: Collection[str] = (),
        legacy: Literal["warn", "allow", "refuse"] = "warn",
        progress: Progress | None = None,
    ) -> Context:
        """Return the context that was saved at `path`, which continues exactly where it was.

        Args:
            path: the file.
            keys: the keys under which it may be encrypted.
            owner: the caller. A snapshot with another owner is refused.
            markings: the markings that the caller may handle. A snapshot with another one is refused.
            legacy: how to treat a snapshot without an identity, as in `llamay_kv.Pool.restore`.
            progress: called as progress("restoring", bytes done, bytes in all).

        Raises SnapshotError for a file that is damaged or encrypted under another key, IdentityMismatchError for
        one of another model or setting, NotAllowedError for one of another owner or marking, OutOfMemoryError,
        EncoderOnlyError.

        """
        from llamay_models.engine.contexts.snapshot import restore

        self.engine.check_writes()
        allowed = {"keys": keys, "owner": owner, "markings": markings, "legacy": legacy}
        return Context(self, restore(self, path, progress, **allowed))

    @property
    def identity(self) -> kv.Identity:
        """Everything that the K/V depends on; a snapshot of another identity is refused."""
        from llamay_models.model.identity import kv_identity

        return kv_identity(self._opened(), self.sha256)

    def close(self) -> None:
        """End all generations, close every context, and free everything. A second call does nothing."""
        self.engine.close()
        for context in list(self._contexts):
            context.close()
        parts, self._parts = self._parts, None
        self._pass_runners.clear()
        if parts is not None and parts.draft is not None and parts.owns_draft:
            parts.draft.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Model {self.name}, {self.architecture}, {self.n_parameters / 1e6:.0f}M parameters>"

    def _opened(self) -> Parts:
        if self._parts is None:
            raise EngineClosedError(f"{self.name} was closed; load it again")
        return self._parts

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise ContextError(f"{self.name} has no tokenizer; give token ids")
        return self.tokenizer


def _identity(model: weakref.ref[Model]) -> kv.Identity:
    alive = model()
    if alive is None:
        raise EngineClosedError("the model was closed; load it again")
    return alive.identity


def _runner(engine: Engine, model: weakref.ref[Model], kind: PassKind) -> Runner:
    """Return the runner of passes: the engine's own where its plan has these outputs, else one made when first used."""
    owner = model()
    if owner is None:
        raise EngineClosedError("the model was closed; load it again")
    parts = owner._opened()
    if kind in ("logits", "pooled") or parts.config.output == "rows":
        return engine.runner
    if kind not in owner._pass_runners:
        short = hidden(parts.program) if kind == "hidden" else _rows(parts.program)
        plan = parts.backend.plan(short.records, short.widths, parts.weights, max_rows=parts.plan.max_rows)
        owner._pass_runners[kind] = Runner(parts.backend, plan, parts.threads)
    return owner._pass_runners[kind]


def _rows(program: Program) -> Program:
    """Return a program with its final pooling replaced by the rows themselves."""
    last = program.records[-1]
    assert last.op == "pool"
    return replace(program, records=(*program.records[:-1], replace(last, op="select", attrs={})))
