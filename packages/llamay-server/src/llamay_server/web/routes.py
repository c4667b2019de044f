"""The web chat: static files of this package, under a content security policy that allows this server only."""

from __future__ import annotations

from importlib import resources
from typing import Any

from litestar import Request, get
from litestar.types import ASGIApp

from llamay_server.http.answers import WholeAnswer
from llamay_server.http.errors import ApiError
from llamay_server.http.route_description import described
from llamay_server.services import services

_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
_POLICY += "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"


def _load() -> dict[str, tuple[bytes, str]]:
    """Return all files by name. Only these are served: a name from a client is a key of this mapping, never a path."""
    folder = resources.files(__package__) / "static"
    return {
        item.name: (item.read_bytes(), _TYPES[item.name.rsplit(".", 1)[-1]])
        for item in folder.iterdir()
        if item.is_file()
    }


_FILES = _load()


def _serve(name: str) -> ASGIApp:
    found = _FILES.get(name)
    if found is None:
        raise ApiError("not_found", f"There is no /ui/{name[:80]} here.", code="unknown_path")
    body, media = found
    return WholeAnswer(
        body, media=media, headers={"content-security-policy": _POLICY, "cache-control": "no-cache"}
    )


@get(["/ui", "/ui/{name:str}"], opt=described(hidden=True))
async def web(request: Request[Any, Any, Any]) -> ASGIApp:
    """A file of the web chat."""
    if not services(request).config.web:
        raise ApiError("not_found", "The web chat is off; start the server with --web.")
    name = str(request.path_params.get("name", ""))
    if not name and not request.scope["raw_path"].split(b"?")[0].endswith(b"/"):
        return WholeAnswer(b"", status=308, headers={"location": "/ui/"}, media="text/html")
    return _serve(name or "index.html")


HANDLERS = [web]
