"""The server's interface to a model: `Model` and `Context`, and the records that pass between the two.

The server reaches computation through these types only. `ServedModel` (`model.py`) implements them over
`llamay_models`; the tests implement them with a deterministic stand-in. Records of `llamay_models` are used as they
are: `Request`, `Sampling`, `Generation`, `Piece`, `TokenScore`, and the errors of `llamay_models.errors`.

Token ids are integers, times are seconds, sizes are bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    # For types only: the settings of a server can be read before an engine is imported.
    from llamay_models import Generation, Request, TokenScore
    from llamay_models.constraints import Compiled
    from llamay_server.engine.constraint import OutputConstraint

Floats: TypeAlias = "npt.NDArray[np.float32]"
Progress = Callable[[str, int, int], None]
"""`progress(stage, done, total)`. Raising from it abandons the work, and frees its memory."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered conversation: the text, for people, and the ids, in which user text holds no control tokens."""

    text: str
    tokens: list[int]


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels in a snapshot: its owner (None: anybody's), and its marking (None: not confidential)."""

    owner: str | None = None
    marking: str | None = None


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """A LoRA adapter that was loaded beside a model, and the scale at which its weights are added."""

    path: Path
    scale: float


@dataclass(frozen=True, slots=True)
class DurationHistogram:
    """A histogram of durations: `counts[i]` of them took at most `bounds[i]` seconds (and more than the bound before).

    `counts` has one entry more than `bounds`, for the durations above the last bound; `total` is the sum of all.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The facts about a model that the dialects tell their clients."""

    name: str
    """The name that the model is served under."""
    architecture: str
    context_length: int
    """The most tokens that a context has here."""
    vocab_size: int
    embedding_length: int
    n_parameters: int
    nbytes: int
    path: Path | None = None
    trained_length: int | None = None
    """The number of tokens that the model was trained for; None where that is not known."""
    quantization: str = "unknown"
    created: float = 0.0
    chat_template: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    bos_token: str = ""
    eos_token: str = ""
    template_takes_tools: bool = False
    template_thinks: bool = False
    sampling_options: frozenset[str] = frozenset()
    """The fields of `llamay_models.Sampling` that the engine honours.

    A request that sets another one is refused: an answer that quietly ignored it would be a wrong answer.
    """

    fill_tokens: Mapping[str, int] = field(default_factory=dict)
    """The ids of the tokens for filling in the middle: fill_prefix, fill_suffix, fill_middle, fill_repo, fill_file.

    Only the roles that the vocabulary has are in it."""

    tensors: Callable[[], Sequence[tuple[str, str, tuple[int, ...]]]] | None = field(
        default=None, compare=False
    )
    """Reads name, format and shape of every tensor from the file."""

    @property
    def fingerprint(self) -> str:
        """A short text that changes with the model and with its quantization."""
        facts = (self.name, self.architecture, self.n_parameters, self.nbytes, self.quantization)
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]


class Context(Protocol):
    """A computed sequence of tokens. One caller owns it at a time; `llamay_models.Context` is one."""

    @property
    def tokens(self) -> Sequence[int]:
        """The ids."""

    @property
    def page_count(self) -> int:
        """Pages that this context holds, shared ones included."""

    @property
    def nbytes(self) -> int:
        """Bytes of those pages."""

    @property
    def logits(self) -> Floats:
        """The logits of the next token (blocking): float32 (vocabulary,)."""

    @property
    def marking(self) -> str | None:
        """The marking of the snapshot that this context was restored from; None where it has none."""

    cached_tokens: int
    """Tokens whose K/V was found in the prefix cache when the context was made."""

    def __len__(self) -> int:
        """Return the number of tokens."""

    def fork(self) -> Self:
        """Return a context that shares all pages with this one and continues exactly as this one would."""

    def truncate(self, n: int) -> object:
        """Keep the first n tokens."""

    def extend(self, more: Sequence[int], *, progress: Progress | None = None) -> object:
        """Prefill more tokens (blocking)."""

    def close(self) -> None:
        """Give the pages back."""


class Model(Protocol):
    """A loaded model. Failures are raised as errors of `llamay_models.errors`, unless a method says otherwise."""

    @property
    def info(self) -> ModelInfo:
        """The facts about it that the dialects tell their clients."""

    @property
    def adapters(self) -> Sequence[LoadedAdapter]:
        """LoRA adapters in their order, each with the scale for requests that ask for none."""

    def set_scales(self, scales: Sequence[float]) -> None:
        """Set the scales for requests that ask for none, one for each adapter."""

    def adapted(self, scales: Sequence[float] | None = None) -> Model:
        """Return the model with these scales of its adapters, or with the ones that `set_scales` set (blocking).

        Raises `QueueFullError` where too many other scales are in use.
        """

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Return the ids of a text; control tokens spelled out in it are plain text without `parse_special`."""

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes that a token stands for, empty for control tokens."""

    def token_name(self, token: int) -> str:
        """Return a token as the vocabulary spells it."""

    def control_tokens(self, names: Sequence[str]) -> list[int]:
        """Return the ids of those names that are control tokens of the vocabulary; other names are left out."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of ids, control tokens spelled out."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """Return a conversation as the model's template writes it. Raises `PromptError` where the template refuses it.

        `continue_final` leaves the last message open, so that the model continues it.
        """

    def use_name(self, name: str) -> None:
        """Go by this name from now on; a model's file may have another one, as the blobs of a store have."""

    def use_template(self, source: str) -> None:
        """Write conversations with this Jinja template from now on. Raises `PromptError` for one that is faulty."""

    def compile(self, wanted: OutputConstraint) -> Compiled:
        """Return a constraint, compiled for the model's vocabulary (blocking). Its `matcher()` constrains one text.

        Its `warnings` name the parts that are not enforced.
        Raises `UnsupportedConstraintError`, with one sentence that names the keyword, where it cannot be enforced
        exactly.
        """

    def submit(self, request: Request) -> Generation:
        """Queue a generation. A context given as prompt is continued in place."""

    def context(
        self, tokens: Sequence[int], *, tenant: str = "", progress: Progress | None = None
    ) -> Context:
        """Prefill a prompt (blocking).

        The first report of progress says how many tokens were found in the prefix cache, the last one all of them.
        """

    def save(self, context: Context, path: Path, labels: Labels, *, progress: Progress | None = None) -> None:
        """Write a snapshot (blocking), encrypted where the server has a key for that. Raises `SnapshotError`."""

    def restore(
        self,
        path: Path,
        *,
        owner: str | None = None,
        markings: Collection[str] = (),
        progress: Progress | None = None,
    ) -> Context:
        """Read a snapshot (blocking) for an owner who handles these markings.

        Raises `IdentityMismatchError` for one of another model, `NotAllowedError` for one of another owner or marking,
        and `SnapshotError` for one that is damaged.
        """

    def embed(
        self,
        texts: Sequence[Sequence[int]],
        *,
        normalize: bool = True,
        dimensions: int | None = None,
        progress: Progress | None = None,
    ) -> Floats:
        """Return an embedding of each text (blocking): float32 (n, dimensions). Raises `PlanError` without one."""

    def score(
        self, tokens: Sequence[int], *, top: int = 0, progress: Progress | None = None
    ) -> list[TokenScore]:
        """Return the log-probability of each token after those before it (blocking); NaN for the first."""

    def rerank(
        self, query: str, documents: Sequence[str], *, progress: Progress | None = None
    ) -> list[float]:
        """Return how well each document answers the query, the higher the better (blocking)."""

    def stats(self) -> Mapping[str, float]:
        """Return the gauges and counters for /metrics; the names of counters end in `_total`."""

    def durations(self) -> Mapping[str, DurationHistogram]:
        """Return the engine's histograms of durations by name: queue, first token, between tokens, step."""

    def close(self) -> None:
        """Unload the model."""


class Loader(Protocol):
    """Loads a model from a path: blocking, with progress; raising from the callback abandons the load."""

    def __call__(
        self,
        path: Path,
        *,
        progress: Progress | None = None,
        draft: Path = ...,
        adapters: Sequence[tuple[Path, float]] = ...,
    ) -> Model:
        """Return the loaded model. `draft` and LoRA `adapters` with their scales are given only where there are any.

        Raises what `llamay_models.load` raises: `ArchitectureError` and other errors of `llamay_models.errors`,
        ValueError for settings that do not fit the file, and OSError where a file cannot be read.
        """
