"""Prefill of contexts that do not generate: the caller waits until the pending tokens are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llamay_models.engine.decoding.sequence import EngineSequence
from llamay_models.engine.requests.channel import Channel
from llamay_models.engine.scheduling.loop import Loop
from llamay_models.engine.state.context_state import State
from llamay_models.errors import PromptError
from llamay_models.progress import Progress


def prefill_one(
    loop: Loop, state: State, channel: Channel, release: Callable[[], None], progress: Progress | None
) -> None:
    """Compute the pending tokens of a context, and the logits after them; see `Engine.prefill`."""
    total, done = len(state.pending), 0
    try:
        loop.check_thread()
        loop.add(EngineSequence(state, channel, None, release, owns_context=False))
    except BaseException:
        channel.finish("cancelled")
        release()
        raise
    try:
        while (item := channel.get()) is not None:
            done += item if isinstance(item, int) else 0
            if progress is not None:
                progress("reading", done, total)
    except BaseException:
        _cancel(loop, channel)
        raise
    _raise(channel)
    if progress is not None:
        progress("reading", total, total)


def prefill_all(loop: Loop, sequences: Sequence[EngineSequence]) -> None:
    """Compute the pending tokens of several sequences; see `Engine.prefill_all`."""
    added: list[EngineSequence] = []

    def add() -> None:
        for sequence in sequences:
            loop.add(sequence)
            added.append(sequence)

    try:
        loop.check_thread()
        loop.call(add)
    except BaseException:
        for sequence in sequences:
            if sequence in added:
                _cancel(loop, sequence.channel)
            else:
                sequence.channel.finish("cancelled")
                sequence.release()
        raise
    for sequence in sequences:
        sequence.channel.finished.wait()
    for sequence in sequences:
        _raise(sequence.channel)


def _cancel(loop: Loop, channel: Channel) -> None:
    """Cancel a sequence, and wait for its end."""
    channel.cancelled = True
    loop.wake.set()
    channel.finished.wait()


def _raise(channel: Channel) -> None:
    """Raise the error of an ended sequence, if there was one."""
    if channel.error is not None:
        raise channel.error
    if channel.finish_reason == "cancelled":
        raise PromptError("the prefill was cancelled")
