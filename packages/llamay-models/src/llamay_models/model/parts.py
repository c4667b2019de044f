"""`Parts`: the parts of a loaded model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import llamay_kv as kv
from llamay_models.architectures import Config
from llamay_models.backend import Backend, Plan, Threads, Weight
from llamay_models.engine import Engine, Stall
from llamay_models.plan import Program

if TYPE_CHECKING:
    from llamay_models.adapters import Adapter
    from llamay_models.embedding import RankHead
    from llamay_models.tokenizer import Tokenizer


class Draft(Protocol):
    """A loaded draft model, as the model that it drafts for sees it."""

    @property
    def engine(self) -> Engine:
        """The engine that computes the drafts."""

    def close(self) -> None:
        """Close the draft model."""


@dataclass(frozen=True)
class Parts:
    """The parts that loading made, for `Model` to hold."""

    path: Path
    name: str
    architecture: str
    config: Config
    metadata: Mapping[str, Any]
    base: Program
    """The program without fusions and adapters, with which another model over the same weights begins."""
    program: Program
    backend: Backend
    weights: Sequence[Weight]
    plan: Plan
    threads: Threads
    tokenizer: Tokenizer | None
    pool: kv.Pool
    precision: str
    dequantized: bool
    ctx_size: int
    max_sequences: int
    sha256: Callable[[], str]
    prefix_cache: int = 0
    disk_cache: kv.DiskCache | None = None
    owns_disk: bool = False
    rank_head: RankHead | None = None
    max_queue: int = 1024
    speculation: bool = True
    draft: Draft | None = None
    owns_draft: bool = False
    stall: Stall | None = None
    adapters: tuple[Adapter, ...] = ()
