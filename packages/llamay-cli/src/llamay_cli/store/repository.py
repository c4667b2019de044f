"""Choosing a file of a repository: by path, by name, by quantization, or the preferred one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from ..errors import IntegrityError, NotFoundError
from .sources import HuggingFace

PREFERRED = ("Q4_K_M", "Q4_K_S", "Q4_0", "Q4_1", "Q5_K_M", "Q8_0", "BF16", "F16", "F32")
"""Quantizations in the order in which they are taken when the user names none."""


@dataclass(frozen=True)
class RepositoryFile:
    """A file in a repository, on the hub or in a cache of it; the hub keeps the SHA-256 of every large one."""

    path: str
    size: int
    sha256: str | None = None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self.path).name


def choose(remote: Sequence[RepositoryFile], source: HuggingFace) -> list[RepositoryFile]:
    """Return the file that `source` names (path, name, quantization) or the preferred one, with all parts."""
    from llamay_models.gguf.split import parts_of

    models = [
        f
        for f in remote
        if f.path.lower().endswith(".gguf") and not f.name.lower().startswith(("mmproj", "imatrix"))
    ]
    first = [f for f in models if parts_of(f.path)[0] == f.path]
    if not first:
        raise NotFoundError(
            f"{source.owner}/{source.repo} has no GGUF file", "look for a repository whose name ends in -GGUF"
        )
    if source.file:
        wanted = source.file.casefold()
        found = [f for f in first if wanted in (f.path.casefold(), f.name.casefold())]
        found = found or [f for f in first if quantization(f.name) == wanted]
        if not found:
            there = ", ".join(sorted(f.name for f in first)[:12])
            raise NotFoundError(
                f"{source.owner}/{source.repo} has no GGUF file for {source.file}", f"it has {there}"
            )
        pick = found[0]
    else:
        ranked = [f for quant in PREFERRED for f in first if quantization(f.name) == quant.casefold()]
        pick = (ranked or sorted(first, key=lambda f: f.size))[0]
    by_path = {f.path: f for f in models}
    wanted_parts = parts_of(pick.path)
    if missing := [path for path in wanted_parts if path not in by_path]:
        raise IntegrityError(f"{source.owner}/{source.repo} lacks {missing[0]}, a part of the model")
    return [by_path[path] for path in wanted_parts]


def quantization(name: str) -> str:
    """Return the quantization that a file name ends in, in lower case; "" where it names none."""
    from llamay_models.gguf.split import model_stem

    form = r"(?i)(?:^|[-._])((?:i?q\d[a-z0-9_]*|tq\d_\d|mxfp4|bf16|f16|f32|fp16|fp32))$"
    match = re.search(form, model_stem(name))
    return match[1].casefold() if match else ""
