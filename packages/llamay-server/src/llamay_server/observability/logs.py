"""Logs: one line or one JSON object per event, control characters escaped, never a prompt."""

from __future__ import annotations

import datetime
import json
import logging
import sys

from llamay_server.config import Config


def clean(text: str) -> str:
    """Return a text with control characters escaped, so that it can neither steer a terminal nor forge a line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Return one event as text; a traceback keeps its own lines."""
        line = f"{_when(record)} {record.levelname.lower():7} {clean(record.getMessage())}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Objects(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Return one event as a JSON object."""
        out: dict[str, object] = {
            "time": _when(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        out |= getattr(record, "fields", {})
        if record.exc_info:
            out["exception"] = self.formatException(record.exc_info)
        return json.dumps(out, ensure_ascii=True)


def _when(record: logging.LogRecord) -> str:
    return datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds")


def configure(config: Config) -> None:
    """Send the server's and uvicorn's logs to standard error in the configured form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Objects() if config.log_json else _Lines())
    for name, level in (("llamay", config.log_level), ("uvicorn", "warning")):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level.upper())
