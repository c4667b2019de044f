"""Chat templates: Jinja in a sandbox, with what the template wrote kept apart from what people wrote."""

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
