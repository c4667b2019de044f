"""Chat templates: from a conversation to the prompt that a model was trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from jinja2 import meta
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError

from ..errors import ChatTemplateError
from .limits import MAX_CHARACTERS, Budget
from .messages import plain, plain_messages
from .sandbox import ChatEnvironment, RefusedError, budget
from .traced import Traced, concat

_KEY = "tokenizer.chat_template"
_MAX_SOURCE = 1 << 20

#: Variables that a caller may not set by keyword: they have their own arguments, or belong to the template.
_RESERVED = frozenset(
    {
        "messages",
        "tools",
        "add_generation_prompt",
        "bos_token",
        "eos_token",
        "raise_exception",
        "strftime_now",
        "chat_template",
        "tokenize",
        "return_dict",
        "padding",
        "truncation",
        "max_length",
        "range",
        "dict",
        "namespace",
        "cycler",
        "joiner",
        "self",
        "loop",
        "caller",
        "varargs",
        "kwargs",
    }
)

#: Options that clients send to any model; a template that does not know them leaves them aside.
COMMON_OPTIONS = frozenset(
    {
        "enable_thinking",
        "thinking",
        "thinking_budget",
        "reasoning_effort",
        "documents",
        "date_string",
        "clear_thinking",
        "preserve_thinking",
        "keep_past_thinking",
        "builtin_tools",
        "custom_tools",
        "tools_in_user_message",
        "citations",
        "controls",
        "model_identity",
        "add_vision_id",
    }
)


class Encoder(Protocol):
    """A tokenizer, as `ChatTemplate.tokenize` uses it; see `llamay_models.tokenizer.Tokenizer`."""

    bos: int | None
    eos: int | None

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Return the ids of a text."""

    def encode_trusting(self, text: bytes, spans: Sequence[tuple[int, int]]) -> list[int]:
        """Return the ids of a text in which control tokens count only inside the byte spans."""

    def token_text(self, token: int) -> str:
        """Return how the file writes a token."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a prompt: of the template (`trusted`), or of the values that it inserted."""

    text: str
    trusted: bool


class ChatTemplate:
    """A chat template in Jinja, as `tokenizer.chat_template` holds it. Usable from any thread.

    It runs in Jinja's immutable sandbox with the helpers that Hugging Face defines, and with limits on output,
    steps, time, numbers and lists.

    Attributes:
        source: the template.
        bos: the text of `bos_token`; likewise eos.
        variables: the names that the template reads and does not set; options among them can be given to `render`.

    """

    def __init__(self, source: str, *, bos: str = "", eos: str = "") -> None:
        """Compile a template.

        Raises:
            ChatTemplateError: it is no template, uses a filter that does not exist, or is longer than 1 MiB.

        """
        if len(source) > _MAX_SOURCE:
            raise ChatTemplateError(f"the chat template is longer than {_MAX_SOURCE} characters")
        self.source = source
        self.bos = bos
        self.eos = eos
        environment = ChatEnvironment()
        try:
            self.variables = frozenset(meta.find_undeclared_variables(environment.parse(source)))
            self._template = environment.from_string(source)
        except TemplateSyntaxError as error:
            raise ChatTemplateError(
                f"the chat template is faulty in line {error.lineno}: {error.message}"
            ) from None
        except (RecursionError, MemoryError, SyntaxError, TemplateError) as error:
            raise ChatTemplateError(
                f"the chat template cannot be compiled: {error or 'nested too deep'}"
            ) from None

    def __repr__(self) -> str:
        return f"<ChatTemplate of {len(self.source)} characters>"

    @classmethod
    def from_metadata(
        cls, metadata: Mapping[str, Any], tokenizer: Encoder, name: str | None = None
    ) -> ChatTemplate:
        """Return the template of a model file, or the one called `name` where it has several.

        Raises:
            ChatTemplateError: there is none, or it cannot be compiled.

        """
        source = metadata.get(f"{_KEY}.{name}" if name else _KEY)
        if not isinstance(source, str):
            others = ", ".join(template_names(metadata)) or "none"
            raise ChatTemplateError(
                f"the model has no chat template{f' called {name!r}' if name else ''}; named ones: {others}"
            )
        special = {
            role: "" if token is None else tokenizer.token_text(token)
            for role, token in (("bos", tokenizer.bos), ("eos", tokenizer.eos))
        }
        return cls(source, **special)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **options: Any,
    ) -> str:
        """Return the prompt of a conversation as text. For tokens use `tokenize`, which keeps content apart.

        Args:
            messages: each with a role and a content (a string, or a list of parts with a type).
            tools: definitions of tools, as JSON schemas in OpenAI's form.
            add_generation_prompt: end where the assistant's answer is to begin.
            options: further variables of the template, such as enable_thinking.

        Raises:
            ChatTemplateError: the messages are malformed, an option is not known or reserved, the template refuses
                the conversation, fails, or goes beyond its limits.

        """
        return self._render(messages, tools, add_generation_prompt, options).plain

    def segments(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **options: Any,
    ) -> list[Segment]:
        """Return the prompt in stretches of the template's own text and of inserted values; see `render`."""
        text = self._render(messages, tools, add_generation_prompt, options)
        result: list[Segment] = []
        at = 0
        for begin, end in text.spans:
            if begin > at:
                result.append(Segment(str.__getitem__(text, slice(at, begin)), False))
            result.append(Segment(str.__getitem__(text, slice(begin, end)), True))
            at = end
        if at < len(text):
            result.append(Segment(str.__getitem__(text, slice(at, None)), False))
        return result

    def tokenize(
        self,
        tokenizer: Encoder,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        *,
        allow_special_in_content: bool = False,
        **options: Any,
    ) -> list[int]:
        """Return the tokens of a conversation.

        Control tokens count only where the template itself wrote them: `<|im_start|>` in a message, a tool's
        description or an option stays plain text. The prompt is encoded as one text, so that its ordinary
        tokens are those of the whole.

        Args:
            tokenizer: of the same model.
            messages: see `render`, likewise the rest.
            tools: see `render`.
            add_generation_prompt: see `render`.
            allow_special_in_content: let control tokens count in content, too, as other engines do.
            options: see `render`.

        Raises:
            ChatTemplateError: see `render`.

        """
        text = self._render(messages, tools, add_generation_prompt, options)
        plain_text = text.plain
        if allow_special_in_content:
            return tokenizer.encode(plain_text, add_special=False, parse_special=True)
        return tokenizer.encode_trusting(plain_text.encode(), list(_byte_spans(plain_text, text.spans)))

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        options: Mapping[str, Any],
    ) -> Traced:
        variables: dict[str, Any] = {
            "messages": plain_messages(messages),
            "tools": None if tools is None else plain(list(tools), "tools"),
            "documents": None,
            **self._checked(options),
            "add_generation_prompt": bool(add_generation_prompt),
            "bos_token": Traced.trusted(self.bos),
            "eos_token": Traced.trusted(self.eos),
        }
        try:
            text = self._run(variables)
        except ChatTemplateError as error:
            # An assistant that only calls tools says nothing: null in the API, and "" to many templates.
            empty = [m for m in variables["messages"] if m["content"] is None]
            if not empty or isinstance(error.__cause__, RefusedError):
                raise
            for message in empty:
                message["content"] = ""
            text = self._run(variables)
        _check_encodable(text)
        return text

    def _run(self, variables: dict[str, Any]) -> Traced:
        token = budget.set(Budget())
        try:
            context = self._template.new_context(variables)
            return concat(self._template.root_render_func(context))
        except ChatTemplateError:
            raise
        except RefusedError as error:
            raise ChatTemplateError(f"the chat template refuses the conversation: {error}") from error
        except SecurityError as error:
            raise ChatTemplateError(f"the chat template does what it must not: {error}") from None
        except (RecursionError, MemoryError):
            raise ChatTemplateError(
                "the chat template calls itself too deeply or takes too much memory"
            ) from None
        except Exception as error:
            # Any exception of a template (a missing key, None + str, …) is the template's error, not ours.
            raise ChatTemplateError(
                f"the chat template failed: {type(error).__name__}: {str(error)[:500]}"
            ) from None
        finally:
            budget.reset(token)

    def _checked(self, options: Mapping[str, Any]) -> dict[str, Any]:
        for name in options:
            if name in _RESERVED or name.startswith("_"):
                raise ChatTemplateError(f"the template option '{name}' is reserved")
            if name not in self.variables and name not in COMMON_OPTIONS:
                known = ", ".join(sorted(self.variables - _RESERVED)) or "none"
                raise ChatTemplateError(f"the chat template has no option '{name}'; it reads: {known}")
        return {name: plain(value, name) for name, value in options.items()}


def template_names(metadata: Mapping[str, Any]) -> list[str]:
    """Return the names of a model's further templates, such as "tool_use" or "rag"."""
    prefix = f"{_KEY}."
    return sorted(key.removeprefix(prefix) for key in metadata if key.startswith(prefix))


def _check_encodable(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise ChatTemplateError(f"the prompt is longer than {MAX_CHARACTERS} characters")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ChatTemplateError(
            f"the messages hold half a surrogate pair (U+{ord(text[error.start]):04X})"
        ) from None


def _byte_spans(text: str, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Turn spans of characters into spans of UTF-8 bytes."""
    at_character = at_byte = 0
    for begin, end in spans:
        at_byte += len(text[at_character:begin].encode())
        first = at_byte
        at_byte += len(text[begin:end].encode())
        at_character = end
        yield first, at_byte
