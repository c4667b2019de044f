"""Reading lines in a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from ..store import home

Read = Callable[[str], str]
"""Prompts with its argument, and returns the line that was typed. Raises EOFError, KeyboardInterrupt."""


def terminal_reader(commands: Sequence[str]) -> Read:
    """Return a reader with line editing, completion of commands, and a history that outlives the chat."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory
    from prompt_toolkit.output import create_output

    history: History = InMemoryHistory()
    if not os.environ.get("LLAMAY_NOHISTORY"):
        path = home() / "history"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        history = FileHistory(path)
    words = WordCompleter([*commands], sentence=True)
    # The prompt goes to the terminal even where stdout is a file that collects the answers.
    output = create_output(sys.stderr) if not sys.stdout.isatty() else None
    prompts: PromptSession[str] = PromptSession(
        history=history, completer=words, complete_while_typing=False, output=output
    )
    return prompts.prompt
