"""Writing an answer while it is generated, and its result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..console.interrupt import Interrupts
from ..console.terminal import AnswerStream

if TYPE_CHECKING:
    from llamay_models import Generation
    from llamay_models.answers import ReasoningSplitter


@dataclass
class WrittenAnswer:
    """The result of a generation: the answer, the reasoning before it, the pieces, and whether Ctrl-C ended it."""

    text: str = ""
    reasoning: str = ""
    pieces: list[Any] = field(default_factory=list)
    interrupted: bool = False


def write_answer(
    generation: Generation,
    out: AnswerStream | None,
    splitter: ReasoningSplitter | None = None,
    reasoning_out: AnswerStream | None = None,
) -> WrittenAnswer:
    """Write the pieces of a generation as they come: the answer to `out`, the reasoning to `reasoning_out`.

    `splitter` tells the two apart; None takes all text for the answer. The generation has ended when this returns, also
    after an error or Ctrl-C.
    """
    texts: tuple[list[str], list[str]] = [], []
    streams = out, reasoning_out
    written = WrittenAnswer()

    def write(parts: Iterable[tuple[bool, str]]) -> None:
        for is_reasoning, text in parts:
            if reasoning_out is not None and not is_reasoning:
                reasoning_out.end()
            texts[is_reasoning].append(text)
            stream = streams[is_reasoning]
            if stream is not None:
                stream.write(text)

    try:
        with Interrupts() as interrupts:
            for piece in generation:
                written.pieces.append(piece)
                write([(False, piece.text)] if splitter is None else splitter.feed(piece.text))
                interrupts.check()
    except KeyboardInterrupt:
        generation.cancel()
        generation.wait()
        written.interrupted = True
    except BaseException:
        generation.cancel()
        generation.wait()
        raise
    finally:
        # In any case: a terminal must not stay dim.
        if splitter is not None:
            write(splitter.finish())
        if reasoning_out is not None:
            reasoning_out.end()
    written.text, written.reasoning = "".join(texts[False]), "".join(texts[True])
    return written
