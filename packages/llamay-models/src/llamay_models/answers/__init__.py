"""The text of a chat model, split into reasoning, text and tool calls, as it streams or whole.

And the way back: conversations with calls in the form that a model's chat template takes (`prepared`).

How models write calls is data of `llamay_grammar` (`tool_formats`), which the grammar that binds a call is made of as
well. It is handed in as `formats`; this package does not import it. Everything here is text in and events out;
`ContextReader` alone knows of models.
"""

from .compact_json import complete_part
from .context_reader import Answer, ContextReader, control_tokens
from .envelopes import Envelope, envelope
from .events import ArgumentsPart, CallBegun, Event, Finished, Reasoning, Text, ToolCall
from .format import AnswerFormat, answer_format, answer_format_of, prompt_end
from .formats import Formats, Types
from .history import for_template
from .reader import THINK, Reader, new_call_id
from .reasoning_splitter import ReasoningSplitter
from .template import DEFAULT, begins_in_reasoning, format_of, reasoning_of, writes_calls
from .tools import openai_tools, schemas_of
from .words import prepared, system_text

__all__ = [
    "DEFAULT",
    "THINK",
    "Answer",
    "AnswerFormat",
    "ArgumentsPart",
    "CallBegun",
    "ContextReader",
    "Envelope",
    "Event",
    "Finished",
    "Formats",
    "Reader",
    "Reasoning",
    "ReasoningSplitter",
    "Text",
    "ToolCall",
    "Types",
    "answer_format",
    "answer_format_of",
    "begins_in_reasoning",
    "complete_part",
    "control_tokens",
    "envelope",
    "for_template",
    "format_of",
    "new_call_id",
    "openai_tools",
    "prepared",
    "prompt_end",
    "reasoning_of",
    "schemas_of",
    "system_text",
    "writes_calls",
]
