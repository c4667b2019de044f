"""Errors and warnings about stored state.

SnapshotError             a snapshot cannot be used; also a ValueError. `part` says which part of it is at fault
 ├─ IdentityMismatchError   another model or setting computed it; `field` names the difference
 └─ NotAllowedError         it has another owner, or a marking that the caller does not handle (a PermissionError)
"""

from __future__ import annotations


class SnapshotError(ValueError):
    """A snapshot cannot be used. Nothing was changed.

    Attributes:
        path: the file; None if state in memory was compared.
        part: the part of the file that is at fault: "header", "manifest", "tokens", "rows", "side state …",
            "chunk … of group …", "layout", "identity", "owner", "marking", "secret" or "end".
        reason: the damage of that part.

    """

    def __init__(self, path: str | None, part: str, reason: str) -> None:
        super().__init__(reason if path is None else f"{path}: {part}: {reason}")
        self.path = path
        self.part = part
        self.reason = reason


class IdentityMismatchError(SnapshotError):
    """Another model, setting or device computed the state.

    Attributes:
        field: the first field in which the two identities differ.
        stored: the field's value in the file, in words; "none" if the file has no such field.
        wanted: the field's value in the identity that was asked for.

    """

    def __init__(self, path: str | None, field: str, stored: str, wanted: str) -> None:
        super().__init__(path, "identity", f"the state belongs to another {field}: {stored}, not {wanted}")
        self.field = field
        self.stored = stored
        self.wanted = wanted


class NotAllowedError(SnapshotError, PermissionError):
    """The snapshot has another owner, or a marking that the caller did not say to accept. Nothing was changed."""


class LegacyWarning(UserWarning):
    """A snapshot without identity was restored by its layout alone."""


class ConvertedWarning(UserWarning):
    """A snapshot in less precision than was computed was restored: its continuation is not exact."""
