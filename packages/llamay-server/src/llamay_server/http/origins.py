"""The Host names that are answered, and the origins of web pages that may call."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from llamay_server.config import is_loopback
from llamay_server.http.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from llamay_server.config import Config

Headers = list[tuple[bytes, bytes]]
CORS_METHODS = b"GET, HEAD, POST, DELETE, PUT, OPTIONS"


class Origins:
    """The rules that a server's configuration makes for Host and Origin headers."""

    def __init__(self, config: Config) -> None:
        self._uds, self._loopback = bool(config.uds), config.loopback
        self._origins = {origin.rstrip("/").lower() for origin in config.origins}
        self._hosts = {host.lower().rstrip(".") for host in config.allowed_hosts}

    def check_host(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuse foreign Host names.

        A web page that rebinds its own name to 127.0.0.1 (DNS rebinding) still sends that name: on loopback, only
        local names are answered.
        """
        host = headers.get(b"host", b"").decode("latin-1")
        name = host_name(host)
        if not name:
            raise ApiError("invalid", "The Host header is missing or malformed.")
        if self._uds or not (self._loopback or self._hosts):
            return
        if not (is_loopback(name) or name in self._hosts or host.lower() in self._hosts):
            raise ApiError("permission", f"Host {name!r} is not served here; add it with --allowed-hosts.")

    def check_origin(self, method: str, scheme: str, headers: Mapping[bytes, bytes]) -> tuple[bool, Headers]:
        """Refuse web pages of foreign origins. Returns whether the request is a preflight, and the CORS headers.

        A preflight of a foreign page gets no such headers: without them the browser itself refuses.
        """
        origin = headers.get(b"origin")
        preflight = method == "OPTIONS" and b"access-control-request-method" in headers
        if origin is None:
            return False, []
        text = origin.decode("latin-1").rstrip("/").lower()
        if text not in self._origins and "*" not in self._origins and not self._is_own(text, scheme, headers):
            if preflight:
                return True, []
            raise ApiError(
                "permission", f"Web pages of origin {text!r} may not call this server; see --origins."
            )
        allowed = [
            (b"access-control-allow-origin", origin),
            (b"vary", b"Origin"),
            (b"access-control-expose-headers", b"x-request-id, x-should-retry, retry-after"),
        ]
        if preflight:
            wanted = headers.get(b"access-control-request-headers", b"authorization, content-type, x-api-key")
            allowed += [
                (b"access-control-allow-methods", CORS_METHODS),
                (b"access-control-allow-headers", wanted[:2048]),
                (b"access-control-max-age", b"600"),
            ]
        return preflight, allowed

    def _is_own(self, origin: str, scheme: str, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether a page came from this server: by scheme, name and port, and a name that cannot be rebound."""
        parts = urlsplit(origin)
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host_name(host)
        trusted = is_loopback(name) or name in self._hosts or _is_address(name)
        return trusted and parts.scheme == scheme and parts.netloc == host


def host_name(host: str) -> str:
    """Return the name in a Host header in lower case, without port, brackets and the root's dot; "" if malformed."""
    if any(c in host for c in "/@\\ ,"):
        return ""
    name, _, port = host.partition("]")[::1] if host.startswith("[") else host.partition(":")
    port = port.removeprefix(":")
    if port and not port.isdigit():
        return ""
    return name.removeprefix("[").lower().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
