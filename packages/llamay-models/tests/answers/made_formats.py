"""Formats made up for these tests: calls as one object, calls between tags, and text that has marks of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

FORMATS: dict[str, Any] = {
    "hermes": {
        "call": [
            {"special": "<call>"},
            {"text": '{"name": "'},
            {"name": True},
            {"text": '", "arguments": '},
            {"arguments": True},
            {"text": "}"},
            {"special": "</call>"},
        ],
        "between": [{"text": "\n"}],
        "stop": ["<call>"],
    },
    "listed": {
        "before": [{"special": "[CALLS]"}, {"text": "["}],
        "call": [
            {"text": '{"name": "'},
            {"name": True},
            {"text": '", "arguments": '},
            {"arguments": True},
            {"optional": [{"text": ', "id": "'}, {"id": True}, {"text": '"'}]},
            {"text": "}"},
        ],
        "between": [{"text": ", "}],
        "after": [{"text": "]"}],
        "stop": ["[CALLS]"],
    },
    "tags": {
        "call": [
            {"special": "<do>"},
            {"name": True},
            {"text": "\n"},
            {
                "parameters": {
                    "open": [{"text": "<arg "}, {"key": True}, {"text": ">"}],
                    "close": [{"text": "</arg>\n"}],
                }
            },
            {"special": "</do>"},
        ],
        "between": [{"text": "\n"}],
        "stop": ["<do>"],
    },
    "functionary-v3.2": {
        "prompted": ">>",
        "say": [{"text": "all\n"}],
        "then": [{"text": ">>"}],
        "call": [{"name": True}, {"text": "\n"}, {"arguments": True}],
        "between": [{"text": ">>"}],
        "stop": [">>"],
    },
    "channels": {
        "say": [{"special": "<ch>"}, {"text": "final"}, {"special": "<msg>"}],
        "call": [
            {"special": "<ch>"},
            {"text": "to="},
            {"name": True},
            {"special": "<msg>"},
            {"arguments": True},
            {"special": "<end>"},
        ],
        "single": True,
        "reasoning": ["<ch>thought<msg>", "<end>"],
        "stop": ["<ch>"],
    },
}


class MadeFormats:
    """Those formats, and a rule for arguments that is easy to see through: JSON unless the schema says string."""

    def tool_formats(self) -> Mapping[str, Mapping[str, Any]]:
        return FORMATS

    def argument_types(self, schema: Any) -> dict[str, frozenset[str]]:
        return {name: frozenset((about["type"],)) for name, about in schema["properties"].items()}

    def read_argument(self, text: str, types: Iterable[str]) -> Any:
        return text if "string" in types else json.loads(text)


MADE = MadeFormats()
