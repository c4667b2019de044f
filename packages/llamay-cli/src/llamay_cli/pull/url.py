"""A GGUF file at an https address; the other parts of a split model are at the same place."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from ..store import Incoming, Store
from ..store.sources import Url
from . import download
from .records import Fetched, Options, Progress


def fetch(source: Url, store: Store, folder: Path, options: Options, progress: Progress) -> Fetched:
    """Download the file, or all parts of a split model when one of them is named."""
    from llamay_models.gguf.split import parts_of

    parts = urlsplit(source.url)
    urls = [parts._replace(path=path).geturl() for path in parts_of(parts.path)]
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
