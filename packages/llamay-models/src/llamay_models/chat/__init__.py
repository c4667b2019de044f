"""Chat templates: Jinja in a sandbox, which keeps the template's own text apart from the text of messages."""

from ..errors import ChatTemplateError
from .go_templates import as_jinja
from .template import COMMON_OPTIONS, ChatTemplate, Encoder, Segment, template_names

__all__ = [
    "COMMON_OPTIONS",
    "ChatTemplate",
    "ChatTemplateError",
    "Encoder",
    "Segment",
    "as_jinja",
    "template_names",
]
