"""The parts of a running server that its routes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from litestar import Request

    from llamay_server.chat.kept import KeptAnswers
    from llamay_server.chat.prompt_history import PromptHistory
    from llamay_server.config import Config
    from llamay_server.contexts.markings import Markings
    from llamay_server.contexts.registry import Contexts
    from llamay_server.http.exchange import Exchange
    from llamay_server.models.registry import Models
    from llamay_server.observability.metrics import Metrics
    from llamay_server.pipeline.admission import AdmissionControl


@dataclass(slots=True)
class Services:
    """The parts of a running server, kept in the application's state.

    Attributes:
        config, models, metrics, admission, contexts, markings: as their classes say.
        responses: kept answers of OpenAI's Responses API.
        threads: kept conversations of Anthropic's threads.
        prompts: earlier prompts that Anthropic's clients may ask to be compared with.
        keyed: whether owners are told apart by API keys.
        version: of this package.
        started: when the server was created, in epoch seconds.

    """

    config: Config
    models: Models
    metrics: Metrics
    admission: AdmissionControl
    contexts: Contexts
    responses: KeptAnswers
    threads: KeptAnswers
    prompts: PromptHistory
    markings: Markings
    keyed: bool
    version: str
    started: float

    def snapshot_owner(self, exchange: Exchange) -> str | None:
        """Return the owner of a snapshot that this request writes or reads; None, for anybody, without keys."""
        return exchange.owner if self.keyed else None

    def tenant(self, exchange: Exchange, salt: str | None = None) -> str:
        """Return the namespace within which computed prefixes are shared: one owner's, narrowed by a `cache_salt`."""
        return f"{exchange.owner}\x00{salt}" if salt else exchange.owner


def services(request: Request[Any, Any, Any]) -> Services:
    """Return the services of the application that received a request."""
    found: Services = request.app.state["services"]
    return found
