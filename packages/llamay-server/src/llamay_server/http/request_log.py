"""The log of requests: one line for each when its answer is complete, and never a word of a prompt."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llamay_server.http.exchange import Exchange

log = logging.getLogger("llamay.server")
_PROBES = frozenset(("/health", "/v1/health", "/metrics"))
NO_ROUTE = "(no route)"
"""The path in the log of a request for which there is no route: the log holds nothing that a client wrote."""
CLIENT_LEFT = 499
"""The status in the log of a client that left before the answer began; nginx's number for it."""


def log_request(method: str, path: str, status: int | None, exchange: Exchange) -> None:
    """Log a request whose answer is complete, or whose client has left (`status` None).

    Probes of health and metrics are logged at the level debug, failures of the server at warning, all others at info.
    """
    status = CLIENT_LEFT if status is None else status
    level = logging.DEBUG if path in _PROBES else logging.WARNING if status >= 500 else logging.INFO
    if not log.isEnabledFor(level):
        return
    spent = exchange.spent
    fields: dict[str, Any] = {"method": method, "path": path, "status": status}
    if exchange.model:
        fields["model"] = exchange.model
    if spent.prompt_tokens or spent.completion_tokens:
        fields["tokens_in"], fields["tokens_cached"] = spent.prompt_tokens, spent.cached_tokens
        fields["tokens_out"] = spent.completion_tokens
    if spent.first_token is not None:
        fields["seconds_to_first_token"] = round(spent.first_token - exchange.started, 4)
    fields["seconds"] = round(time.monotonic() - exchange.started, 4)
    fields["request_id"] = exchange.request_id
    if exchange.owner:
        fields["owner"] = exchange.owner
    log.log(level, "%s", _line(fields), extra={"fields": fields})


def _line(fields: dict[str, Any]) -> str:
    """Return the fields as a line: the first three by their values alone, the others with their names."""
    rest = (f"{name}={value}" for name, value in list(fields.items())[3:])
    return " ".join([fields["method"], fields["path"], str(fields["status"]), *rest])
