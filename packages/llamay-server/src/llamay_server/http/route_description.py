"""A route's description for the OpenAPI document, beside the facts that the framework has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

KEY = "llamay.openapi"


def described(
    *,
    body: Any = None,
    body_required: bool = True,
    stream: str | None = None,
    media: str = "application/json",
    query: Sequence[dict[str, Any]] = (),
    hidden: bool = False,
) -> dict[str, Any]:
    """Return the `opt` of a route handler.

    Args:
        body: the struct of the request's JSON body, or a list of one, or a media type for a body that is a file.
        body_required: whether the body may not be left out.
        stream: the media type of a streamed answer, where there may be one.
        media: the media type of a whole answer.
        query: parameters of the query, as OpenAPI has them.
        hidden: whether the document leaves the route out.

    """
    return {
        KEY: {
            "body": body,
            "body_required": body_required,
            "stream": stream,
            "media": media,
            "query": list(query),
            "hidden": hidden,
        }
    }


EVENTS = "text/event-stream"
LINES = "application/x-ndjson"
