"""Generations and contexts of llamay_models as the server's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import numpy as np

import llamay_kv
import llamay_models
from llamay_models import errors
from llamay_server.engine import protocol as p
from llamay_server.engine.errors import translate, translated


class Generation:
    """A generation whose errors the server knows."""

    def __init__(self, inner: llamay_models.Generation) -> None:
        self._inner = inner

    @property
    def finish_reason(self) -> p.FinishReason | None:
        """Why it ended; None while it runs."""
        return self._inner.finish_reason

    @property
    def stop_sequence(self) -> str | None:
        """The stop string that ended it, if one did."""
        return self._inner.stop_sequence

    @property
    def usage(self) -> p.Usage:
        """Tokens so far."""
        return self._inner.usage

    @property
    def error(self) -> BaseException | None:
        """What went wrong."""
        return None if self._inner.error is None else translate(self._inner.error)

    def cancel(self) -> None:
        """Stop within one step."""
        self._inner.cancel()

    def divert(self, taker: p.Taker) -> None:
        """Give pieces to a function while they are waited for."""
        self._inner.divert(taker)

    async def __aiter__(self) -> AsyncIterator[p.Piece]:
        """Pieces in order."""
        try:
            async for piece in self._inner:
                yield piece
        except errors.LlamayError as e:
            raise translate(e) from e


class Context:
    """A context whose errors the server knows."""

    def __init__(
        self, inner: llamay_models.Context, cached: int = 0, key: llamay_kv.Key | None = None
    ) -> None:
        self.inner, self.cached_tokens, self._key = inner, cached, key

    @property
    def marking(self) -> str | None:
        """The marking that came with its snapshot."""
        return self.inner.marking

    @property
    def tokens(self) -> Sequence[int]:
        """The ids."""
        return self.inner.tokens

    @property
    def pages(self) -> int:
        """Pages held."""
        return self.inner.pages

    @property
    def nbytes(self) -> int:
        """Bytes of those pages."""
        return self.inner.nbytes

    def __len__(self) -> int:
        return len(self.inner)

    def fork(self, n: int) -> list[p.Context]:
        """N contexts that share all pages with this one; each continues exactly as it would."""
        # Single forks: `fork(n)` would give each a random stream of its own, and seeds already tell them apart.
        return [Context(self.inner.fork(), len(self.inner), self._key) for _ in range(n)]

    def truncate(self, n: int) -> None:
        """Keep the first n tokens."""
        with translated():
            self.inner.truncate(n)

    def extend(self, tokens: Sequence[int], *, progress: p.Progress | None = None) -> None:
        """Read more tokens."""
        with translated():
            self.inner.extend(tokens, progress=progress)

    def chances(self, tokens: Sequence[int]) -> list[float]:
        """How likely each of these tokens is the next one."""
        with translated():
            logits = self.inner.logits.astype(np.float64)
        weights = np.exp(logits - logits.max())
        found: list[float] = (weights[np.asarray(tokens, np.intp)] / weights.sum()).tolist()
        return found

    def save(
        self, path: Path, *, labels: p.Labels = p.UNLABELLED, progress: p.Progress | None = None
    ) -> None:
        """Write a snapshot."""
        with translated(path):
            self.inner.save(
                path, key=self._key, owner=labels.owner, marking=labels.marking, progress=progress
            )

    def close(self) -> None:
        """Give the pages back."""
        self.inner.close()
