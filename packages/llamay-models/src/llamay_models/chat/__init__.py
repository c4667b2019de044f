"""Chat templates: Jinja in a sandbox, with what the template wrote kept apart from what people wrote."""

from ._errors import ChatTemplateError
from ._template import COMMON_OPTIONS, ChatTemplate, Encoder, Segment, template_names

__all__ = ["COMMON_OPTIONS", "ChatTemplate", "ChatTemplateError", "Encoder", "Segment", "template_names"]
