"""What the routes share: one object, kept in the application's state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from litestar import Request

    from llamay_server.chat.kept import Responses
    from llamay_server.chat.prompt_history import SeenPrompts
    from llamay_server.config import Config
    from llamay_server.contexts.markings import Markings
    from llamay_server.contexts.registry import Contexts
    from llamay_server.http.call import Call
    from llamay_server.models.registry import Models
    from llamay_server.observability.metrics import Metrics
    from llamay_server.pipeline.run import Admission


@dataclass(slots=True)
class Services:
    """The parts of a running server."""

    config: Config
    models: Models
    metrics: Metrics
    admission: Admission
    contexts: Contexts
    responses: Responses
    threads: Responses
    prompts: SeenPrompts
    markings: Markings
    keyed: bool
    """Whether owners are told apart by keys."""
    version: str
    started: float

    def snapshot_owner(self, call: Call) -> str | None:
        """Whose a snapshot is that this call writes or reads; nobody's where there are no keys."""
        return call.owner if self.keyed else None

    def tenant(self, call: Call, salt: str | None = None) -> str:
        """Within what computed prefixes are shared: one key's requests, narrowed by the client's own salt."""
        return f"{call.owner}\x00{salt}" if salt else call.owner


def services(request: Request[Any, Any, Any]) -> Services:
    """The services of the application that got this request."""
    found: Services = request.app.state["services"]
    return found
