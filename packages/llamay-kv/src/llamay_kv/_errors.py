"""What can go wrong with stored state.

ValueError
 ├─ SnapshotError        a file that is damaged, foreign or not for this pool; `part` says which part of it
 └─ IdentityMismatch     state of something else; `field` says in what it differs
PermissionError
 └─ NotAllowed           state of somebody else, or marked as something that was not asked for
"""

from __future__ import annotations


class SnapshotError(ValueError):
    """A snapshot that cannot be used. Nothing was changed.

    Attributes:
        part: the part of the file that is at fault: "header", "manifest", "tokens", "side state …",
            "chunk … of group …", "layout" or "end".

    """

    def __init__(self, path: str, part: str, reason: str) -> None:
        super().__init__(f"{path}: {part}: {reason}")
        self.path = path
        self.part = part
        self.reason = reason


class IdentityMismatch(ValueError):
    """The state was computed by something else.

    Attributes:
        field: the first field in which the two identities differ.

    """

    def __init__(self, field: str, stored: str, wanted: str) -> None:
        super().__init__(f"the state belongs to another {field}: {stored}, not {wanted}")
        self.field = field


class NotAllowed(PermissionError):
    """The snapshot has another owner, or a marking that the caller did not say to accept. Nothing was changed."""


class LegacyWarning(UserWarning):
    """A snapshot that says nothing about what computed it was restored by its layout alone."""


class ConvertedWarning(UserWarning):
    """A snapshot that holds less precision than was computed was restored: what follows from it is not exact."""
