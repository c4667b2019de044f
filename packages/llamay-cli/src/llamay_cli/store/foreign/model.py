"""`ForeignModel`: a model that is in another program's store."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import IntegrityError
from ..gguf_header import has_template
from .files import read_bounded


@dataclass(frozen=True)
class ForeignModel:
    """A model in another program's store. `id` is 64 hex digits; sizes are bytes, times epoch seconds."""

    name: str
    path: Path
    size: int
    id: str
    modified: float
    source: str
    """"ollama" or "huggingface"."""
    layers: tuple[tuple[str, Path], ...] = field(default=(), repr=False)

    def settings(self) -> dict[str, Any]:
        """Return template, system prompt, license, parameters and opening messages, where the model has them.

        Raises IntegrityError where they cannot be read.
        """
        out: dict[str, Any] = {}
        for kind, path in self.layers:
            try:
                text = read_bounded(path)
                if kind == "license":
                    out.setdefault("license", []).append(text)
                elif kind in ("params", "messages"):
                    out["parameters" if kind == "params" else kind] = _checked(kind, json.loads(text))
                else:
                    out[kind] = text
            except (OSError, ValueError, RecursionError) as error:
                raise IntegrityError(
                    f"the {kind} of {self.name} in Ollama's store cannot be read: {error}"
                ) from None
        if "template" in out and has_template(self.path):
            # Tool calls and reasoning are read by the file's own template.
            del out["template"]
        return out


def _checked(kind: str, value: Any) -> Any:
    good = isinstance(value, dict) if kind == "params" else isinstance(value, list)
    if not good:
        raise ValueError("it has not the form that it must have")
    return value
