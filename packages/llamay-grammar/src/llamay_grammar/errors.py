"""The exceptions of this package, with fields."""

from __future__ import annotations

__all__ = ["CompileError", "RefusedTokenError", "RestoreError"]


class CompileError(ValueError):
    """A schema, regular expression or grammar that is refused.

    Attributes:
        keyword: the keyword that cannot be enforced, ``"budget"`` where a limit on time, states or size was hit, or
            empty where the whole document is at fault.
        pointer: JSON pointer of that keyword in the schema (empty for regular expressions and grammars).

    """

    keyword: str
    pointer: str

    def __init__(self, message: str, keyword: str = "", pointer: str = "") -> None:
        super().__init__(f"{pointer}: {message}" if pointer else message)
        self.keyword = keyword
        self.pointer = pointer


class RefusedTokenError(ValueError):
    """A token that no valid document continues with. The matcher is where it was."""


class RestoreError(ValueError):
    """Serialised bytes that are damaged, or belong to another grammar or vocabulary."""
