"""Reading a GGUF file's header for the stores."""

from __future__ import annotations

from pathlib import Path


def has_template(path: Path) -> bool:
    """Return whether a GGUF file has a chat template of its own."""
    from llamay_models import gguf

    try:
        with gguf.open(path) as file:
            return isinstance(file.metadata.get("tokenizer.chat_template"), str)
    except (gguf.GGUFError, OSError):
        return False  # loading the file reports that
