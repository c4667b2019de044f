"""Chat templates: Jinja in a sandbox, which keeps the template's own text apart from the text of messages."""

from ._errors import ChatTemplateError
from ._go import as_jinja
from ._template import COMMON_OPTIONS, ChatTemplate, Encoder, Segment, template_names

__all__ = [
    "COMMON_OPTIONS",
    "ChatTemplate",
    "ChatTemplateError",
    "Encoder",
    "Segment",
    "as_jinja",
    "template_names",
]
