"""Every error that a caller of llamay_models can meet.

LlamayError
├── ModelError                  the file or its contents
│   ├── GGUFError               the file is no GGUF file, is damaged, or cannot be written as asked
│   ├── TokenizerError          the vocabulary cannot be used, or a text cannot be encoded
│   ├── ArchitectureError       the architecture is not one of ours
│   ├── MetadataError           a key is missing, has the wrong type, or makes no sense
│   └── TensorError             a tensor is missing, unused, or has the wrong shape or format
├── PlanError                   an architecture combines operations or widths that do not fit
├── InterfaceError              two installed packages do not fit together (also an ImportError)
├── PromptError                 the prompt is empty, too long, or holds a token that the model does not have
│   ├── PromptTooLongError      `.tokens` and `.limit` say by how much
│   └── EncoderOnlyError        the model makes embeddings of texts, and writes none
├── ChatTemplateError           a chat template cannot be used, or refuses a conversation
├── SamplingError               a sampling option is outside its range
├── ContextError                the context is closed, in use, or asked for something it does not hold
├── SnapshotError               a snapshot cannot be written, is damaged, or does not fit
│   ├── IdentityMismatchError   made with other weights or settings; `.field` names the difference
│   └── NotAllowedError         it is of another owner, or has a marking that the caller does not handle
├── OutOfMemoryError            the K/V budget is used up
├── QueueFullError              too many requests wait already
├── PoolFullError               there is no room for another model
├── ConstraintError             a constraint allows no token, or refuses the one that was sampled
└── EngineClosedError           the model was closed

Each message is one sentence of what was wrong, where, and what to do about it.

Other errors that calls raise: those of the grammar compiler, for a schema, a pattern or a grammar that it refuses
(`llamay_grammar.CompileError`, a ValueError); OSError for a file that cannot be opened; ValueError for an argument of a
wrong type or out of range, where no error of this list is about it.
"""

from __future__ import annotations

from pathlib import Path

import llamay_kv


class LlamayError(Exception):
    """The base of every error here: `except LlamayError` catches the errors that one line can tell a user."""


class ModelError(LlamayError):
    """A model file cannot be used."""


class ArchitectureError(ModelError):
    """The file's architecture is unknown, or it needs a feature that is not built."""


class MetadataError(ModelError):
    """A metadata key is missing, has the wrong type, or contradicts another."""


class TensorError(ModelError):
    """A tensor is missing, not used by the architecture, or has the wrong shape or format."""


class GGUFError(ModelError, ValueError):
    """A GGUF file cannot be read or written as asked.

    Attributes:
        path: the file, or None for bytes in memory.
        problem: the problem.
        hint: the remedy.
        offset: the byte of the file where it was noticed, or None where no single byte is to blame.

    """

    def __init__(
        self, problem: str, hint: str, *, path: Path | None = None, offset: int | None = None
    ) -> None:
        where = "" if path is None else f"{path}: "
        at = "" if offset is None else f" (at byte {offset})"
        super().__init__(f"{where}{problem}{at}; {hint}" if hint else f"{where}{problem}{at}")
        self.path = path
        self.problem = problem
        self.hint = hint
        self.offset = offset


class TokenizerError(ModelError, ValueError):
    """A file's vocabulary cannot be used, or a text cannot be encoded."""


class PlanError(LlamayError):
    """Operations, widths or weights do not fit together."""


class InterfaceError(LlamayError, ImportError):
    """Two installed llamay packages do not speak the same version of an interface."""


class PromptError(LlamayError):
    """A prompt is empty, too long for the context, or holds an unknown token."""


class PromptTooLongError(PromptError):
    """A prompt has more `tokens` than the `limit` of the context, or of a step where a text must be one step."""

    def __init__(self, tokens: int, limit: int, *, step: bool = False, extensible: bool = True) -> None:
        remedy = "shorten it or load the model with a larger ctx_size"
        if step:
            what = f"the text has {tokens} tokens, but this model reads a text in one step, which has {limit} rows"
            remedy = "shorten it or load the model with a larger max_rows"
        elif extensible:
            what = f"the prompt has {tokens} tokens but the context holds {limit}"
        else:
            what = f"the text has {tokens} tokens but this model reads at most {limit}"
            remedy = "shorten it"
        super().__init__(f"{what}; {remedy}")
        self.tokens, self.limit = tokens, limit


class EncoderOnlyError(PromptError):
    """The model is an encoder: it makes embeddings of texts, scores pairs of them perhaps, and writes none."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} is an encoder and writes no text: use embed or rerank, or load another model to generate"
        )


class SamplingError(LlamayError):
    """A sampling option is outside its range."""


class ChatTemplateError(LlamayError, ValueError):
    """A chat template cannot be used, refuses a conversation, or goes beyond its limits."""


class ContextError(LlamayError):
    """A context is closed, in use by a generation, or lacks the requested tokens."""


class SnapshotError(LlamayError, llamay_kv.SnapshotError):
    """A snapshot cannot be written, is damaged, or does not fit this model. Also a `llamay_kv.SnapshotError`.

    Attributes:
        path: the file; None where the error is not about one file.
        part: the part of the file that is at fault, as `llamay_kv.SnapshotError` names it; "" where it is none of them.
        reason: what is wrong with that part.

    """

    def __init__(self, message: str, *, path: str | None = None, part: str = "", reason: str = "") -> None:
        Exception.__init__(self, message)
        self.path, self.part, self.reason = path, part, reason or message


class IdentityMismatchError(SnapshotError, llamay_kv.IdentityMismatchError):
    """A snapshot was made with other weights, settings or arithmetic. Also a `llamay_kv.IdentityMismatchError`.

    `field` is the first part of the identity that differs, `stored` the snapshot's value of it, `wanted` this model's.
    """

    def __init__(
        self, message: str, field: str = "", stored: str = "", wanted: str = "", *, path: str | None = None
    ) -> None:
        SnapshotError.__init__(self, message, path=path, part="identity")
        self.field, self.stored, self.wanted = field, stored, wanted


class NotAllowedError(SnapshotError, llamay_kv.NotAllowedError):
    """A snapshot has another owner, or a marking that the caller did not say to handle.

    Also a `llamay_kv.NotAllowedError`.
    """


class OutOfMemoryError(LlamayError):
    """The K/V budget is used up."""


class QueueFullError(LlamayError):
    """Too many requests wait for the model; this one was not queued."""


class PoolFullError(LlamayError):
    """The models in use leave no room for another one, or one that is in use is to be unloaded.

    `passing` is False where there would be no room even if none was in use.
    """

    def __init__(self, message: str, *, passing: bool = True) -> None:
        super().__init__(message)
        self.passing = passing


class ConstraintError(LlamayError):
    """A constraint allows no token, or refuses the token that was sampled."""


class EngineClosedError(LlamayError):
    """The model, and with it its engine, was closed."""


__all__ = [
    "ArchitectureError",
    "ChatTemplateError",
    "ConstraintError",
    "ContextError",
    "EncoderOnlyError",
    "EngineClosedError",
    "GGUFError",
    "IdentityMismatchError",
    "InterfaceError",
    "LlamayError",
    "MetadataError",
    "ModelError",
    "NotAllowedError",
    "OutOfMemoryError",
    "PlanError",
    "PoolFullError",
    "PromptError",
    "PromptTooLongError",
    "QueueFullError",
    "SamplingError",
    "SnapshotError",
    "TensorError",
    "TokenizerError",
]


def __dir__() -> list[str]:
    return sorted(__all__)
