"""The new process of a check: `python -m llamay_cli.verification.worker`, with a JSON request on stdin."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from .subject import Setup, Subject, observe


def main() -> None:
    """Restore or prefill, observe, and write the observation to the file that the request names."""
    request = json.load(sys.stdin)
    subject = Subject(Path(request["path"]), Setup(**request["setup"]), request["sha256"])
    import llamay_kernels

    with subject.loaded() as model:
        context = (
            model.restore(request["snapshot"]) if request["snapshot"] else model.context(request["prompt"])
        )
        with context:
            seen = observe(context, request["more"])
    arrays: dict[str, Any] = {f"logits{i}": logits for i, logits in enumerate(seen.logits.values())}
    with Path(request["out"]).open("wb") as out:
        np.savez(
            out,
            places=np.array(list(seen.logits)),
            tokens=np.array(seen.tokens, np.int64),
            isa=np.array(llamay_kernels.isa()),
            **arrays,
        )


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {error}")
