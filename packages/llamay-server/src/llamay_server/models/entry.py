"""`Entry`: one model as a server offers it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from llamay_server.store import Profile

if TYPE_CHECKING:
    from llamay_models.pool import ModelPool, Status
    from llamay_server.engine.protocol import Model, ModelInfo


@dataclass(slots=True)
class Entry:
    """One model as a server offers it. Whether it is loaded is known to its pool."""

    name: str
    path: Path | None
    pool: ModelPool
    profile: Profile = field(default_factory=Profile)
    stored: bool = False
    """Whether file and profile are those of this name in the model store."""

    @property
    def model(self) -> Model | None:
        """The model itself, while it is loaded."""
        return cast("Model | None", self.pool.peek(self.name))

    @property
    def info(self) -> ModelInfo | None:
        """The facts about the model, while it is loaded. It may be unloaded at any time: read this once."""
        model = self.model
        return None if model is None else model.info

    @property
    def status(self) -> Status:
        """The pool's record of the model."""
        return self.pool.about(self.name)

    @property
    def nbytes(self) -> int:
        """Bytes of its file; 0 where they are not known."""
        try:
            return 0 if self.path is None else self.path.stat().st_size
        except OSError:
            return 0

    @property
    def modified(self) -> float:
        """The time of the last change of its file, in epoch seconds; 0 where that is not known."""
        try:
            return 0.0 if self.path is None else self.path.stat().st_mtime
        except OSError:
            return 0.0

    @property
    def expires(self) -> float | None:
        """The time at which it is unloaded if nobody uses it from now on, in epoch seconds; None for never."""
        status = self.status
        if status.pinned or status.keep_alive < 0:
            return None
        at = time.monotonic() + status.keep_alive if status.expires is None else status.expires
        return time.time() + at - time.monotonic()

    def keep(self, seconds: float) -> None:
        """Set how long the model stays loaded after its last use, until it is unloaded the next time."""
        self.pool.keep(self.name, seconds)
