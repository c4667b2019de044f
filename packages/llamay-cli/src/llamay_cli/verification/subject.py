"""The subject of verification: a model file, loaded in any setup, in this process or a new one."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..errors import CliError
from .comparison import Observation

if TYPE_CHECKING:
    from llamay_models import Context, Model
    from llamay_models.engine import Progress

Precision = Literal["f16", "f32", "vq8", "q8"]
GENERATED = 8
"""Tokens that an observation generates."""


@dataclass(frozen=True)
class Setup:
    """The way a model is loaded. Nothing here may change its results."""

    threads: int | None = None
    page_tokens: int = 64
    kv: Precision = "f16"
    isa: str | None = None


class Subject:
    """A model file under test."""

    def __init__(self, path: Path, setup: Setup | None = None, sha256: str | None = None) -> None:
        self.path = path
        self.setup = setup or Setup()
        self.sha256 = sha256

    @contextlib.contextmanager
    def loaded(self, progress: Progress | None = None, **changes: Any) -> Iterator[Model]:
        """Load the model, with some of the setup changed."""
        import llamay_models

        setup = replace(self.setup, **changes)
        with llamay_models.load(
            self.path,
            threads=setup.threads,
            page_tokens=setup.page_tokens,
            kv=setup.kv,
            sha256=self.sha256,
            # One way must not reuse the K/V that another way computed.
            prefix_cache=0,
            progress=progress,
        ) as model:
            yield model

    def kernel_sets(self) -> list[str]:
        """Return the kernel sets that this CPU runs, the one in use first."""
        import llamay_kernels

        current = llamay_kernels.isa()
        return [current, *(name for name in llamay_kernels.runnable_isas() if name != current)]

    def in_new_process(
        self,
        *,
        isa: str | None = None,
        snapshot: Path | None = None,
        prompt: Sequence[int] = (),
        more: Sequence[int] = (),
    ) -> tuple[Observation, str]:
        """Observe in a new process, from a snapshot or a prompt; return the observation and the kernel set."""
        with tempfile.TemporaryDirectory(prefix="llamay-verify-") as folder:
            out = Path(folder) / "observation.npz"
            request = {
                "path": str(self.path),
                "sha256": self.sha256,
                "setup": asdict(self.setup),
                "snapshot": str(snapshot) if snapshot else None,
                "prompt": list(prompt),
                "more": list(more),
                "out": str(out),
            }
            env = {**os.environ, **({"LLAMAY_ISA": isa} if isa else {})}
            done = subprocess.run(
                [sys.executable, "-m", "llamay_cli.verification.worker"],
                input=json.dumps(request),
                env=env,
                capture_output=True,
                text=True,
            )
            if done.returncode or not out.exists():
                lines = done.stderr.strip().splitlines()
                raise CliError(
                    f"the new process failed: {lines[-1] if lines else f'exit code {done.returncode}'}"
                )
            with np.load(out, allow_pickle=False) as data:
                places = [str(place) for place in data["places"]]
                seen = {place: data[f"logits{i}"] for i, place in enumerate(places)}
                return Observation(seen, data["tokens"].tolist()), str(data["isa"])


def observe(context: Context, more: Sequence[int] = (), *, generated: int = GENERATED) -> Observation:
    """Return the logits after the context, after each of `more`, and after generating the likeliest tokens."""
    from llamay_models import Sampling

    seen = Observation()
    seen.record(f"after {len(context)}", context.logits)
    for token in more:
        context.extend([token])
        seen.record(f"after {len(context)}", context.logits)
    if generated:
        greedy = Sampling(temperature=0.0, seed=0)
        seen.tokens = list(context.generate(greedy, max_tokens=generated, ignore_eos=True).tokens)
        seen.record("after generating", context.logits)
    return seen
