"""What the server needs from an engine, and nothing more.

Everything the server knows of computation passes through these types. `_adapter` fulfils them with `llamay_models`;
the tests fulfil them with a deterministic stand-in. Token ids are integers, times are seconds, sizes are bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    # Only named here: a server's settings can be read before an engine is loaded.
    from llamay_models.engine import FinishReason as FinishReason
    from llamay_models.engine import Piece as Piece
    from llamay_models.engine import TokenScore as TokenScore
    from llamay_models.engine import Usage as Usage

Taker: TypeAlias = "Callable[[str, tuple[int, ...], tuple[TokenScore, ...]], bool]"
"""Takes the text, tokens and scores of a piece, or gives False to leave it to whoever iterates."""
Embeddings: TypeAlias = "npt.NDArray[np.float32]"
Progress = Callable[[str, int, int], None]
"""`progress(stage, done, total)`. Raising from it abandons the work, and whatever it held is freed."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered conversation: the text, for people, and the ids, in which user text holds no control tokens."""

    text: str
    tokens: list[int]


@dataclass(frozen=True, slots=True)
class Labels:
    """What a snapshot says of itself: whose it is, and how confidential. None is nobody's, and not at all."""

    owner: str | None = None
    marking: str | None = None


UNLABELLED = Labels()


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter that was loaded beside a model, and how much of it counts."""

    path: Path
    scale: float


@dataclass(frozen=True, slots=True)
class Times:
    """How many times of a kind were at most each bound, and in one more count longer; `total` is their sum. Seconds."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is said of a model on the wire."""

    name: str
    architecture: str
    context_length: int
    vocab_size: int
    embedding_length: int
    n_parameters: int
    nbytes: int
    path: Path | None = None
    quantization: str = "unknown"
    created: float = 0.0
    chat_template: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    bos_token: str = ""
    eos_token: str = ""
    template_takes_tools: bool = False
    template_thinks: bool = False
    sampling_options: frozenset[str] = frozenset()
    """Names that `Work.sampling` may hold; a request that sets another is refused, never quietly loosened."""

    fill_tokens: Mapping[str, int] = field(default_factory=dict)
    """Of filling in the middle: fill_prefix, fill_suffix, fill_middle; fill_repo and fill_file where it has them."""

    tensors: Callable[[], Sequence[tuple[str, str, tuple[int, ...]]]] | None = field(
        default=None, compare=False
    )
    """Reads name, format and shape of the tensors from the file."""

    @property
    def fingerprint(self) -> str:
        """A short text that changes with the model and how it was quantized."""
        facts = (self.name, self.architecture, self.n_parameters, self.nbytes, self.quantization)
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Work:
    """One generation to run. A context given as prompt is advanced in place; ids are a prompt of their own."""

    prompt: Sequence[int] | Context
    sampling: Mapping[str, Any] = field(default_factory=dict)
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    constraint: Any = None
    ignore_eos: bool = False
    logprobs: int | None = None
    """None: no scores. n: the chosen token's score and n alternatives."""
    reuse: bool = True
    """Whether a prefix that is already computed may be used."""
    tenant: str = ""
    """Prefixes are shared within a tenant only."""
    priority: int = 0
    """Higher ones come first."""
    timeout: float | None = None
    """Seconds from now after which the text ends as it is."""
    special: tuple[str, ...] = ()
    """Control tokens, as the vocabulary spells them, that are to be visible in the text."""


class Generation(Protocol):
    """A running generation: iterate to receive it, cancel to free what it holds."""

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why it ended; None while it runs."""

    @property
    def stop_sequence(self) -> str | None:
        """The stop string that ended it, if one did."""

    @property
    def usage(self) -> Usage:
        """Tokens so far."""

    @property
    def error(self) -> BaseException | None:
        """What went wrong where `finish_reason` is "error"."""

    def cancel(self) -> None:
        """Stop within one step; harmless after the end."""

    def divert(self, taker: Taker) -> None:
        """Give pieces to `taker`, in the loop's thread, while they are waited for; what it leaves is iterated."""

    def __aiter__(self) -> AsyncIterator[Piece]:
        """Pieces in order, from any running loop."""


class Context(Protocol):
    """A computed sequence of tokens, owned by one caller at a time."""

    @property
    def tokens(self) -> Sequence[int]:
        """The ids."""

    @property
    def pages(self) -> int:
        """Pages that this context holds, shared ones included."""

    @property
    def nbytes(self) -> int:
        """Bytes of those pages."""

    @property
    def cached_tokens(self) -> int:
        """Tokens that were found already computed when it was made."""

    def __len__(self) -> int:
        """Tokens."""

    def fork(self, n: int) -> list[Context]:
        """N contexts that share all pages with this one."""

    def truncate(self, n: int) -> None:
        """Keep the first n tokens."""

    def extend(self, tokens: Sequence[int], *, progress: Progress | None = None) -> None:
        """Read more tokens."""

    def chances(self, tokens: Sequence[int]) -> list[float]:
        """How likely each of these tokens is the next one (blocking)."""

    @property
    def marking(self) -> str | None:
        """The marking that came with its snapshot, if it was restored from one that has one."""

    def save(self, path: Path, *, labels: Labels = UNLABELLED, progress: Progress | None = None) -> None:
        """Write a snapshot, encrypted where the server has a key for that."""

    def close(self) -> None:
        """Give the pages back."""


class Model(Protocol):
    """A loaded model."""

    @property
    def info(self) -> ModelInfo:
        """What it is."""

    @property
    def adapters(self) -> Sequence[Adapter]:
        """LoRA adapters in their order, each with the scale that holds for requests that say none."""

    def set_scales(self, scales: Sequence[float]) -> None:
        """Set these scales, one for each adapter."""

    def adapted(self, scales: Sequence[float] | None = None) -> Model:
        """Itself with these scales of its adapters, or with those that hold (blocking). Raises `Busy`."""

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Text to ids; control tokens written out in the text count as such only with `parse_special`."""

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token stands for, empty for control tokens."""

    def token_name(self, token: int) -> str:
        """A token as the vocabulary spells it."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Ids to text, control tokens spelled out."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """A conversation as the model's template writes it."""

    def use_template(self, source: str) -> None:
        """Write conversations with this Jinja template from now on. Raises `BadPrompt` for one that is faulty."""

    def constraint(self, kind: str, value: Any) -> Any:
        """A token constraint of kind json_schema, json_object, regex, grammar or tools.

        The value of tools has `tools` (OpenAI's form), `format` (a name of `llamay_grammar.tool_formats`), `choice`
        ("auto", "required" or a tool's name), `parallel`, `strict`, and `answer` (a schema for an answer without a
        call, or None).

        What a loose one does not enforce is told in its `warnings`, where it has any. Raises
        `UnsupportedConstraint` with one sentence that names the keyword.
        """

    def submit(self, work: Work) -> Generation:
        """Queue a generation."""

    def context(
        self, tokens: Sequence[int], *, tenant: str = "", progress: Progress | None = None
    ) -> Context:
        """Read a prompt (blocking). Its first report of progress is what was found computed, its last all of it."""

    def restore(
        self,
        path: Path,
        *,
        owner: str | None = None,
        markings: Collection[str] = (),
        progress: Progress | None = None,
    ) -> Context:
        """Read a snapshot (blocking) for an owner who handles these markings.

        Raises `IdentityConflict` for another model's, `BadSnapshot` for a broken one, `SnapshotNotAllowed` for one of
        another owner or marking.
        """

    def embed(
        self,
        texts: Sequence[Sequence[int]],
        *,
        normalize: bool = True,
        dimensions: int | None = None,
        progress: Progress | None = None,
    ) -> Embeddings:
        """An embedding of each text (blocking): float32 (n, dimensions). Raises `NotSupported`."""

    def score(
        self, tokens: Sequence[int], *, top: int = 0, progress: Progress | None = None
    ) -> list[TokenScore]:
        """How likely each token is after those before it (blocking); NaN for the first. Raises `NotSupported`."""

    def rerank(
        self, query: str, documents: Sequence[str], *, progress: Progress | None = None
    ) -> list[float]:
        """How well each document answers the query, the higher the better (blocking). Raises `NotSupported`."""

    def stats(self) -> Mapping[str, float]:
        """Gauges and counters for /metrics; counters end in `_total`."""

    def times(self) -> Mapping[str, Times]:
        """How the engine's times are distributed, by what they are of."""

    def close(self) -> None:
        """Unload."""


class EngineError(Exception):
    """Base of what an engine may raise to the server; the message is one sentence meant for the client."""


class PromptTooLong(EngineError):
    """More tokens than the model's context holds."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(
            f"This model's maximum context length is {limit} tokens, but the request has {tokens} tokens: "
            f"it exceeds the available context size. Shorten the messages or the completion."
        )
        self.tokens, self.limit = tokens, limit


class BadPrompt(EngineError):
    """A prompt that cannot be read: empty, an unknown token id, a template that refuses it."""


class UnsupportedConstraint(EngineError):
    """A schema, expression or grammar that cannot be enforced exactly."""


class BadSnapshot(EngineError):
    """A snapshot that is damaged, cut short, or of an unknown format."""


class SnapshotNotAllowed(EngineError):
    """A snapshot of another owner, or with a marking that the caller does not handle."""


class IdentityConflict(EngineError):
    """A snapshot made by other weights or settings; `expected` and `found` are the two values."""

    def __init__(self, message: str, *, fieldname: str = "", expected: str = "", found: str = "") -> None:
        super().__init__(message)
        self.field, self.expected, self.found = fieldname, expected, found


class OutOfMemory(EngineError):
    """No page is left under the budget."""


class Busy(EngineError):
    """Too many requests wait for the engine."""


class NotSupported(EngineError):
    """The engine lacks this ability."""


class UnknownArchitecture(NotSupported):
    """A model file of a kind that the engine does not know."""


class UnusableModel(EngineError):
    """A model file that is damaged or incomplete, or that does not go with the settings it is to be loaded with."""


class Loader(Protocol):
    """Loads a model from a path: blocking, with progress; raising from the callback abandons it."""

    def __call__(
        self,
        path: Path,
        *,
        progress: Progress | None = None,
        draft: Path = ...,
        adapters: Sequence[tuple[Path, float]] = ...,
    ) -> Model:
        """The loaded model. `draft` and LoRA `adapters` with their scales are given only where it has them.

        Raises `UnknownArchitecture`, `UnusableModel`, `OutOfMemory`, or OSError where the file cannot be read.
        """
