"""Moving a context to another server: it stays here until the other server has it.

Only servers that the operator lists may be targets: with a target from a client, this server would be a proxy into its
network. Redirects are not followed.
"""

from __future__ import annotations

import http.client
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import msgspec

from llamay_server.http.errors import ApiError

if TYPE_CHECKING:
    from llamay_server.engine.protocol import Progress

_SECONDS = 60.0
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """A server to move to: its base URL from the operator's list, and the key to use there."""

    url: str
    key: str = ""


def check_target(url: str, allowed: tuple[str, ...]) -> str:
    """Return the target as the operator wrote it. Raises a 403 for a server that is not listed."""
    wanted = url.rstrip("/")
    for candidate in allowed:
        if candidate.rstrip("/") == wanted:
            return wanted
    raise ApiError(
        "permission",
        "Contexts may only be moved to servers listed in --move-targets.",
        code="target_not_allowed",
    )


def send(path: Path, target: Target, *, model: str, label: str, marking: str, progress: Progress) -> str:
    """Upload a snapshot (blocking); returns its id there. Raises an `ApiError` where the other server refuses it."""
    parts = urlsplit(target.url)
    host, port = parts.hostname or "", parts.port
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(
            host, port, timeout=_SECONDS, context=ssl.create_default_context()
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)
    size = path.stat().st_size
    query = urlencode({"model": model, "label": label, "marking": marking})
    try:
        connection.putrequest("POST", f"{parts.path.rstrip('/')}/v1/contexts/restore?{query}")
        connection.putheader("Content-Type", "application/vnd.llamay.context")
        connection.putheader("Content-Length", str(size))
        if target.key:
            connection.putheader("Authorization", f"Bearer {target.key}")
        connection.endheaders()
        sent = 0
        with path.open("rb") as file:
            while part := file.read(_CHUNK):
                progress("moving", sent, size)
                connection.send(part)
                sent += len(part)
        response = connection.getresponse()
        body = response.read(1 << 20)
    except (OSError, http.client.HTTPException) as e:
        raise ApiError(
            "unavailable",
            f"The other server could not be reached or left: {type(e).__name__}.",
            code="move_failed",
            retry=False,
        ) from e
    finally:
        connection.close()
    try:
        answer = msgspec.json.decode(body)
    except msgspec.DecodeError:
        answer = {}
    if response.status != 201 or not isinstance(answer, dict) or not isinstance(answer.get("id"), str):
        said = str(answer.get("detail", ""))[:500] if isinstance(answer, dict) else ""
        kind = "conflict" if response.status == 409 else "unavailable"
        raise ApiError(
            kind,
            f"The other server answered {response.status}. {said}".strip(),
            code="move_refused",
            retry=False,
        )
    return str(answer["id"])
