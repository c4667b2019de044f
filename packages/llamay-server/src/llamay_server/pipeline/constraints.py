"""The fields that ask for a certain form of the output, as one `OutputConstraint`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from llamay_server.engine.constraint import JSON_KINDS, OutputConstraint
from llamay_server.http.bodies import boolean
from llamay_server.http.errors import invalid, unsupported

if TYPE_CHECKING:
    from llamay_server.pipeline.sampling import SamplingFields


def output_constraint(
    fields: SamplingFields, response_format: Any = None, param: str = "response_format"
) -> OutputConstraint | None:
    """Return the one constraint that a request asks for; a request that asks for two is refused.

    `response_format` is OpenAI's, and `param` the path of its field.
    """
    found: list[OutputConstraint] = []
    if fields.grammar:
        found.append(OutputConstraint("grammar", fields.grammar, "grammar"))
    if fields.json_schema is not None:
        found.append(OutputConstraint("json_schema", fields.json_schema, "json_schema"))
    if fields.regex:
        found.append(OutputConstraint("regex", fields.regex, "regex"))
    if fields.guided_json is not None:
        schema = _schema(fields.guided_json, "guided_json")
        found.append(OutputConstraint("json_schema", schema, "guided_json"))
    if fields.guided_regex:
        found.append(OutputConstraint("regex", fields.guided_regex, "guided_regex"))
    if fields.guided_choice is not None:
        found.append(_choice(fields.guided_choice, "guided_choice"))
    if fields.guided_grammar:
        found.append(OutputConstraint("grammar", fields.guided_grammar, "guided_grammar"))
    structured = fields.structured_outputs or {}
    free_form = boolean(structured, "free_form", "structured_outputs")
    found += _structured(structured)
    if (form := format_constraint(response_format, param)) is not None:
        found.append(form)
    if len(found) > 1:
        raise invalid(
            f"{found[1].param}: the output is already constrained by {found[0].param}; use one",
            found[1].param,
        )
    if not found:
        return None
    return replace(found[0], free_form=free_form is True and found[0].kind in JSON_KINDS)


def _structured(given: dict[str, Any]) -> list[OutputConstraint]:
    """Return the constraints of vLLM's `structured_outputs`."""
    found = []
    for key, value in given.items():
        where = f"structured_outputs.{key[:40]}"
        if value is None or key == "free_form":
            continue
        match key:
            case "json":
                found.append(OutputConstraint("json_schema", _schema(value, where), where))
            case "json_object":
                if boolean(given, key, "structured_outputs"):
                    found.append(OutputConstraint("json_object", None, where))
            case "regex" | "grammar":
                if not isinstance(value, str):
                    raise invalid(f"{where}: it must be text", where, "invalid_type")
                found.append(OutputConstraint(key, value, where))
            case "choice":
                found.append(_choice(value, where))
            case _:
                raise unsupported(where)
    return found


def _choice(choices: Any, where: str) -> OutputConstraint:
    """Return one of several texts, as a regular expression."""
    if not isinstance(choices, list) or not choices or not all(isinstance(c, str) and c for c in choices):
        raise invalid(f"{where}: it must be a list of texts, none empty", where)
    return OutputConstraint("regex", "|".join(escape_regex(c) for c in choices), where)


def format_constraint(form: Any, param: str = "response_format") -> OutputConstraint | None:
    """Return OpenAI's response_format, or text.format of Responses, as a constraint; None for free text."""
    if form is None:
        return None
    kind = form.get("type") if isinstance(form, dict) else None
    if kind in (None, "text"):
        if kind is None:
            raise invalid(
                f"{param}.type: it is missing; use text, json_object or json_schema", f"{param}.type"
            )
        return None
    if kind == "json_object":
        # llama.cpp reads a schema here too, and its clients send one.
        schema = form.get("schema")
        return (
            OutputConstraint("json_object", None, param)
            if schema is None
            else OutputConstraint("json_schema", _schema(schema, f"{param}.schema"), f"{param}.schema")
        )
    if kind == "json_schema":
        # Chat has name and schema one level down, Responses and Messages beside the type.
        inner, where = form, f"{param}.schema"
        if "json_schema" in form or param == "response_format":
            inner, where = form.get("json_schema", form), f"{param}.json_schema.schema"
        if not isinstance(inner, dict) or "schema" not in inner:
            raise invalid(f"{where}: it is missing", where)
        return OutputConstraint("json_schema", _schema(inner["schema"], where, text=False), where)
    raise invalid(
        f"{param}.type: {str(kind)[:40]!r} is unknown; use text, json_object or json_schema", f"{param}.type"
    )


def _schema(value: Any, where: str, *, text: bool = True) -> dict[str, Any] | bool:
    """Return a JSON schema; `text` says whether it may be given as JSON text. Raises a 400 for what is none."""
    if text and isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError) as e:
            raise invalid(f"{where}: not valid JSON: {e}", where) from None
    if not isinstance(value, dict | bool):
        raise invalid(f"{where}: it must be a JSON schema, an object or a boolean", where, "invalid_type")
    return value


def escape_regex(text: str) -> str:
    """Return a regular expression that matches just this text."""
    return "".join("\\" + c if c in r"\^$.|?*+()[]{}/" else c for c in text)
