"""Created models, written as Ollama's Modelfile (https://docs.ollama.com/modelfile)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llamay_server.store import Profile


def _pairs(parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
    out = []
    for name, value in sorted(parameters.items()):
        for each in value if isinstance(value, list | tuple) else [value]:
            out.append((name, json.dumps(each, ensure_ascii=False)))
    return out


def parameter_lines(parameters: Mapping[str, Any]) -> str:
    """Return one line for each value, with the names in a column: the `parameters` of /api/show."""
    return "\n".join(f"{name:<30} {value}" for name, value in _pairs(parameters))


def modelfile(source: str, profile: Profile, adapters: Sequence[str] = ()) -> str:
    """Return the Modelfile from which the model would be created again."""
    lines = [f"FROM {source}", *(f"ADAPTER {path}" for path in adapters)]
    if profile.template is not None:
        lines.append(f"TEMPLATE {_quoted(profile.template)}")
    if profile.system:
        lines.append(f"SYSTEM {_quoted(profile.system)}")
    lines += [f"PARAMETER {name} {value}" for name, value in _pairs(profile.parameters)]
    lines += [f"MESSAGE {m.get('role')} {_quoted(m.get('content') or '')}" for m in profile.messages]
    lines += [f"LICENSE {_quoted(text)}" for text in profile.license]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    plain = '"""' not in text and not text.endswith('"')
    return json.dumps(text, ensure_ascii=False) if not plain else f'"""{text}"""'
