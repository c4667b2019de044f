"""A GGUF file at an https address; the other parts of a split model are at the same place."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from ..store import Incoming, Store
from ..store.sources import Url
from . import download
from .records import Fetched, Options, Progress

_FIRST = re.compile(r"(-)00001(-of-)(\d{5})(\.gguf)$", re.IGNORECASE)


def fetch(source: Url, store: Store, folder: Path, options: Options, progress: Progress) -> Fetched:
    """Download the file, or all parts when its name says that it is the first of several."""
    parts = urlsplit(source.url)
    urls = [parts._replace(path=path).geturl() for path in _all_parts(parts.path)]
    files: list[Incoming] = []
    with download.client(insecure=options.insecure) as http:
        for url in urls:
            name = Url(url).file
            got = download.Download(
                http,
                url,
                folder / f"{len(files):05d}",
                store=store,
                limits=options.limits,
                progress=progress,
                sha256=options.sha256 if len(urls) == 1 else None,
                stage=name,
            ).run()
            files.append(Incoming(got.path, name, got.sha256, "model"))
    return Fetched(files, {"url": source.url})


def _all_parts(path: str) -> list[str]:
    if not (match := _FIRST.search(path)):
        return [path]
    return [_FIRST.sub(rf"\g<1>{i:05d}\g<2>\g<3>\g<4>", path) for i in range(1, int(match[3]) + 1)]
