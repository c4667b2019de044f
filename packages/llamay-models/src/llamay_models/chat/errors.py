"""The one error of this package."""

from ..errors import LlamayError


class ChatTemplateError(LlamayError, ValueError):
    """A chat template cannot be used, refuses a conversation, or goes beyond its limits."""
