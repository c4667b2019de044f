"""Reading a Modelfile, the text in which Ollama's users describe a model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ..errors import CliError

_ROLES = ("system", "user", "assistant")
_WORDS = ("from", "template", "system", "license", "parameter", "message", "adapter", "requires")


def read(text: str) -> dict[str, Any]:
    """Return the content of a Modelfile under the names of `/api/create`.

    These are from, adapters, template, system, license, parameters and messages. Keywords may be written in any case,
    `#` begins a comment, and three quotes enclose several lines. Raises CliError naming the line.
    """
    out: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    for line, word, rest in _instructions(text):
        match word:
            case "from":
                if "from" in out:
                    raise _error(line, "there is a FROM already")
                out["from"] = rest
            case "template" | "system":
                out[word] = rest
            case "license":
                out.setdefault("license", []).append(rest)
            case "parameter":
                name, _, value = rest.partition(" ")
                if not value.strip():
                    raise _error(line, "write PARAMETER NAME VALUE")
                _add(parameters, name.lower(), _unquoted(value.strip()))
            case "message":
                role, _, content = rest.partition(" ")
                if role.lower() not in _ROLES:
                    raise _error(line, f"a MESSAGE is of {', '.join(_ROLES)}, not of {role[:20]!r}")
                message = {"role": role.lower(), "content": _unquoted(content.strip())}
                out.setdefault("messages", []).append(message)
            case "adapter":
                out.setdefault("adapters", []).append(rest)
            case "requires":
                pass  # asks for a version of Ollama
    if "from" not in out:
        raise CliError("the Modelfile has no FROM", "FROM names a model, or a GGUF file")
    if parameters:
        out["parameters"] = parameters
    return out


def _instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the number of each line, its keyword in lower case, and the rest without its quotes."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        number, line = at + 1, lines[at].strip()
        at += 1
        if not line or line.startswith("#"):
            continue
        match = re.match(r"([A-Za-z]+)(?:\s+(.*))?$", line, re.DOTALL)
        if match is None:
            raise _error(number, f"{line[:40]!r} is no instruction")
        word, rest = match[1].lower(), match[2] or ""
        if word not in _WORDS:
            raise _error(number, f"{word.upper()[:20]!r} is no instruction of a Modelfile")
        if (opened := rest.find('"""')) >= 0:
            head, body = rest[:opened], rest[opened + 3 :]
            collected = [body]
            while '"""' not in collected[-1]:
                if at == len(lines):
                    raise _error(number, 'three quotes are not closed by """')
                collected.append(lines[at])
                at += 1
            body, _, after = "\n".join(collected).partition('"""')
            if after.strip():
                raise _error(at, f'{after.strip()[:40]!r} follows the closing """')
            yield number, word, head + body
        elif not rest:
            raise _error(number, f"{word.upper()} says nothing")
        else:
            yield number, word, rest if word in ("parameter", "message") else _unquoted(rest)


def _unquoted(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        try:
            return str(json.loads(text, strict=False))
        except ValueError:
            return text[1:-1]
    return text


def _add(parameters: dict[str, Any], name: str, value: str) -> None:
    if name == "stop":
        parameters.setdefault("stop", []).append(value)
        return
    try:
        read: Any = json.loads(value)
    except ValueError:
        read = value
    parameters[name] = read if isinstance(read, int | float | bool) else value


def _error(line: int, text: str) -> CliError:
    return CliError(f"Modelfile line {line}: {text}")
