"""Progress of long work, on stderr: a bar on a terminal, plain lines in a log, JSON for programs."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, Protocol

import click

from ..errors import printable
from .tables import format_bytes

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

Mode = Literal["auto", "bar", "plain", "json", "none"]
MODES: tuple[str, ...] = ("auto", "bar", "plain", "json", "none")
EVERY = 5.0
"""Seconds between two plain lines about one stage."""
JSON_EVERY = 0.25


class Report(Protocol):
    """The function that long work calls with its progress: `done` of `total` (0: not known) in this stage."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show that `done` of `total` is done."""


@contextlib.contextmanager
def reporting(mode: Mode = "auto", *, unit: Literal["bytes", "steps"] = "steps") -> Iterator[Report]:
    """Yield the function that shows progress in `mode`; the display on a terminal is cleared at the end."""
    if mode == "auto":
        terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        mode = "bar" if terminal else "plain"
    match mode:
        case "bar":
            with _bars(unit) as report:
                yield report
        case "plain":
            yield _Plain(unit)
        case "json":
            yield _Json()
        case _:
            yield lambda stage, done, total: None


@contextlib.contextmanager
def _bars(unit: str) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns: list[ProgressColumn] = [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
    ]
    columns += [DownloadColumn(), TransferSpeedColumn()] if unit == "bytes" else [MofNCompleteColumn()]
    columns.append(TimeRemainingColumn())
    bars = Progress(*columns, console=Console(stderr=True), transient=unit != "bytes")
    tasks: dict[str, TaskID] = {}
    # The display starts with the first report, so that work which ends at once shows nothing.
    with contextlib.ExitStack() as stack:

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                if not tasks:
                    stack.enter_context(bars)
                tasks[stage] = bars.add_task(printable(stage), total=total or None)
            _update(bars, tasks[stage], done, total)

        yield report


def _update(bars: Bars, task: TaskID, done: int, total: int) -> None:
    bars.update(task, completed=done, total=total or None)


class _Plain:
    """A line when a stage ends, and one each few seconds while it lasts."""

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.last: dict[str, float] = {}
        self.ended: set[str] = set()

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        began = self.last.setdefault(stage, now)
        ends = bool(total) and done >= total
        # A stage that ends within the first interval gets no line, unless it fetched bytes.
        if stage in self.ended or not (now - began >= EVERY or (ends and self.unit == "bytes")):
            return
        self.last[stage] = now
        if ends:
            self.ended.add(stage)
        click.echo(f"{printable(stage)}: {self._amount(done, total)}", err=True)

    def _amount(self, done: int, total: int) -> str:
        if self.unit == "bytes":
            shown = format_bytes(done)
            return f"{shown} of {format_bytes(total)} ({100 * done // total} %)" if total else shown
        return f"{done} of {total}" if total else str(done)


class _Json:
    def __init__(self) -> None:
        self.last: dict[str, float] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self.last.get(stage, 0.0) < JSON_EVERY and not (total and done >= total):
            return
        self.last[stage] = now
        click.echo(json.dumps({"stage": stage, "done": done, "total": total or None}), err=True)
