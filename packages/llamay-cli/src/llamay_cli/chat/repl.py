"""The chat in a terminal: lines in, answers out, and commands that begin with a slash."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..console.error_report import report_error
from ..console.inputs import read_text
from ..console.interrupt import Interrupts
from ..console.progress import Mode, reporting
from ..console.terminal import AnswerStream
from ..errors import CliError, printable
from ..options.sampling import SAMPLING_DEFAULTS, make_sampling
from ..paths import expand
from .answer import write_answer
from .line_editor import Read, terminal_reader
from .reasoning import ReasoningStream
from .report import timing_lines, timings

if TYPE_CHECKING:
    from .session import Session

QUOTES = '"""'


@dataclass(frozen=True)
class Command:
    """A slash command: its syntax, its help, and its method."""

    usage: str
    text: str
    method: str


COMMANDS: dict[str, Command] = {
    "help": Command("/help", "show this", "_help"),
    "bye": Command("/bye", "leave (also Ctrl-D)", "_bye"),
    "clear": Command("/clear", "forget the conversation", "_clear"),
    "retry": Command("/retry", "take the last answer back and ask again", "_retry"),
    "system": Command("/system [TEXT]", "show, set or (with -) remove the system prompt", "_system"),
    "set": Command(
        "/set [OPTION VALUE]", "show or set an option: temperature, seed, max-tokens, verbose, …", "_set"
    ),
    "file": Command("/file FILE [TEXT]", "send the content of a file", "_file"),
    "fork": Command("/fork [NAME]", "begin a branch that shares everything up to here", "_fork"),
    "switch": Command("/switch NAME", "go on with another branch", "_switch"),
    "branches": Command("/branches", "list the branches", "_branches"),
    "save": Command("/save FILE", "write the context to a file", "_save"),
    "load": Command("/load FILE", "go on from a file", "_load"),
    "show": Command("/show", "show the model, the context and the options", "_show"),
}
ALIASES = {"?": "help", "exit": "bye", "quit": "bye", "branch": "branches"}


class Leave(Exception):  # noqa: N818 -- a way out of a loop, no error
    """Raised to end the chat."""


class Repl:
    """A chat: reads with `read` (prompt_toolkit by default), answers on stdout, everything else on stderr."""

    def __init__(
        self,
        session: Session,
        given: dict[str, Any],
        generating: dict[str, Any],
        *,
        name: str,
        verbose: bool = False,
        progress: Mode = "auto",
        read: Read | None = None,
        out: AnswerStream | None = None,
        hide_thinking: bool = False,
    ) -> None:
        self.session, self.given, self.generating = session, given, generating
        self.name, self.verbose, self.progress = name, verbose, progress
        self.read = read or terminal_reader([f"/{name}" for name in COMMANDS])
        self.out = out or AnswerStream()
        self.hide_thinking = hide_thinking

    def run(self) -> None:
        """Run the chat until /bye, Ctrl-D, or Ctrl-C twice at the prompt."""
        kind = " (no chat template: text is continued as it is)" if self.session.raw else ""
        self._say(f"{self.name}{kind}. /help shows the commands, /bye leaves.")
        with Interrupts() as interrupts:
            self._talk(interrupts)
        self.session.close()

    def _talk(self, interrupts: Interrupts) -> None:
        interrupted = False
        while True:
            try:
                interrupts.check()
                text = self._read_message()
                interrupted = False
                self._turn(text)
            except KeyboardInterrupt:
                interrupts.acknowledge()
                if interrupted:
                    raise
                interrupted = True
                self._say("Ctrl-C again, Ctrl-D or /bye leaves.")
            except (EOFError, Leave):
                break
            except Exception as error:
                self._complain(error)

    def _read_message(self) -> str:
        """Return a line, or the lines between two `\"\"\"`."""
        mark = f"{self.session.name}> " if len(self.session.branches) > 1 else "> "
        text = self.read(mark)
        if not text.lstrip().startswith(QUOTES):
            return text.strip()
        body = text.lstrip()[len(QUOTES) :]
        while QUOTES not in body:
            body += "\n" + self.read("... ")
        return body[: body.rindex(QUOTES)].strip("\n")

    def _turn(self, text: str) -> None:
        if not text:
            return
        if not text.startswith("/"):
            self._answer(text)
            return
        word, _, rest = text[1:].partition(" ")
        command = COMMANDS.get(ALIASES.get(word.lower(), word.lower()))
        if command is None:
            raise CliError(
                f"there is no command /{word}",
                "/help shows the commands; a space before the slash sends it as text",
            )
        getattr(self, command.method)(rest.strip())

    def _answer(self, text: str) -> None:
        with reporting(self.progress) as report:
            generation = self.session.ask(text, make_sampling(self.given), report, **self._fresh())
        reasoning_out = None if self.hide_thinking else ReasoningStream()
        written = write_answer(generation, self.out, self.session.splitter, reasoning_out)
        self.session.answered(written.text, written.reasoning)
        self.out.end()
        if written.interrupted:
            self._say("(stopped)")
        elif generation.finish_reason == "length":
            self._say(
                "(cut off: "
                + ("--max-tokens is reached)" if self.generating["max_tokens"] else "the context is full)")
            )
        if self.verbose:
            for line in timing_lines(timings(generation, self.session.prefill)):
                self._say(line)

    def _fresh(self) -> dict[str, Any]:
        """Return the options of one generation. A constraint serves one generation, so each generation gets a fork."""
        constraint = self.generating.get("constraint")
        return {**self.generating, "constraint": constraint.fork() if constraint is not None else None}

    def _help(self, rest: str) -> None:
        width = max(len(command.usage) for command in COMMANDS.values())
        for command in COMMANDS.values():
            self._say(f"{command.usage:{width}}  {command.text}")
        self._say(f"{QUOTES:{width}}  begins and ends a message of several lines")
        self._say(f"{'Ctrl-C':{width}}  stops an answer")

    def _bye(self, rest: str) -> None:
        raise Leave

    def _clear(self, rest: str) -> None:
        self.session.clear()
        self._say("The conversation is forgotten.")

    def _retry(self, rest: str) -> None:
        self._answer(self.session.again())

    def _system(self, rest: str) -> None:
        if rest:
            self.session.set_system(None if rest == "-" else rest)
        self._say(f"system: {self.session.system or '(none)'}")

    def _set(self, rest: str) -> None:
        name, _, value = rest.partition(" ")
        if name:
            self._assign(name.removeprefix("--").replace("-", "_"), value.strip())
        for key, shown in self._settings():
            self._say(f"{key.replace('_', '-'):18} {shown}")

    def _assign(self, name: str, value: str) -> None:
        if name == "verbose":
            self.verbose = _on(value)
        elif name == "hide_thinking":
            self.hide_thinking = _on(value)
        elif name == "think":
            self.session.think = None if value in ("", "default") else _on(value)
        elif name == "max_tokens":
            self.generating["max_tokens"] = (
                None if value in ("", "none", "-1") else _number(name, value, whole=True)
            )
        elif name == "stop":
            self.generating["stop"] = tuple(shlex.split(value))
        elif name in ("seed", *SAMPLING_DEFAULTS):
            changed = dict(self.given)
            changed.pop(name, None)
            if value not in ("", "default", "random"):
                changed[name] = _number(
                    name, value, whole=name == "seed" or isinstance(SAMPLING_DEFAULTS[name], int)
                )
            make_sampling(changed)  # refuses a value out of range before it takes effect
            self.given = changed
        else:
            raise CliError(f"there is no option {name.replace('_', '-')}", "/set shows the options")

    def _settings(self) -> Iterator[tuple[str, str]]:
        yield "seed", str(self.given.get("seed", "random"))
        for name, default in SAMPLING_DEFAULTS.items():
            yield name, f"{self.given.get(name, default):g}"
        yield (
            "max_tokens",
            str(self.generating["max_tokens"] if self.generating["max_tokens"] is not None else "none"),
        )
        yield "stop", shlex.join(self.generating["stop"]) or "none"
        think = self.session.think
        yield "think", "default" if think is None else "on" if think else "off"
        yield "hide_thinking", "on" if self.hide_thinking else "off"
        yield "verbose", "on" if self.verbose else "off"

    def _file(self, rest: str) -> None:
        parts = rest.split(maxsplit=1)
        if not parts:
            raise CliError("/file needs a file")
        text = read_text(str(expand(parts[0])))
        self._answer(f"{parts[1]}\n\n{text}" if len(parts) > 1 else text)

    def _fork(self, rest: str) -> None:
        old = self.session.name
        self._say(f"Branch {self.session.fork(rest or None)}; /switch {old} goes back.")

    def _switch(self, rest: str) -> None:
        self.session.switch(rest)
        self._say(f"Branch {rest}.")

    def _branches(self, rest: str) -> None:
        for name, branch in self.session.branches.items():
            here = "*" if name == self.session.name else " "
            tokens = len(branch.context) if branch.context is not None else 0
            self._say(f"{here} {name}: {len(branch.messages)} messages, {tokens} tokens")

    def _save(self, rest: str) -> None:
        path = _path(rest, "/save")
        with reporting(self.progress) as report:
            self.session.save(path, report)
        self._say(f"Saved to {path} ({path.stat().st_size:,} bytes).")

    def _load(self, rest: str) -> None:
        path = _path(rest, "/load")
        with reporting(self.progress) as report:
            tokens = self.session.load(path, report)
        self._say(f"Loaded {tokens} tokens.")

    def _show(self, rest: str) -> None:
        model, context = self.session.model, self.session.branch.context
        self._say(f"model    {self.name} ({model.architecture}, {model.n_parameters / 1e6:.0f}M parameters)")
        used = len(context) if context is not None else 0
        self._say(f"context  {used} of {model.context_length} tokens")
        self._set("")

    def _complain(self, error: Exception) -> None:
        if os.environ.get("LLAMAY_DEBUG"):
            raise error
        report_error(error)

    def _say(self, text: str) -> None:
        click.echo(click.style(printable(text), dim=True), err=True)


def _on(value: str) -> bool:
    return value.lower() not in ("off", "false", "0", "no")


def _path(rest: str, command: str) -> Path:
    if not rest:
        raise CliError(f"{command} needs a file")
    return expand(rest)


def _number(name: str, value: str, *, whole: bool) -> float | int:
    try:
        return int(value) if whole else float(value)
    except ValueError:
        raise CliError(
            f"{name.replace('_', '-')} takes a {'whole number' if whole else 'number'}, not {value!r}"
        ) from None
