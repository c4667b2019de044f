"""An object store as a file system: S3, GCS, Azure, or anything else that obstore speaks to."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from llamay_kv import arguments
from llamay_kv.extras import needed_by
from llamay_kv.storage.vfs import Buffer, File, Listed

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_NO_END = 1 << 62


class ObjectVfs:
    """Give it to `DiskCache`, `Context.save` and `Pool.restore` as their `vfs`.

    Args:
        store: an obstore store, for instance `obstore.store.S3Store("bucket", …)`. Its own settings say how often and
            how long a request is tried again.
        buffer_bytes: a file up to this size is kept in memory until it is complete and put with one request; a larger
            one is sent in parts meanwhile.

    An object appears whole or not at all: one request puts it under its name, or renames the parts that were
    sent in parts. There is no room to run out of, and no cheap way to say that an object was of use, so a cache's
    budget drops the objects that were written longest ago. Needs the extra `object-store`.

    """

    def __init__(self, store: ObjectStore, *, buffer_bytes: int = 64 << 20) -> None:
        with needed_by("llamay_kv.ObjectVfs", "object-store"):
            import obstore  # noqa: F401  # at once, and not with the first file
        self._store, self._buffer_bytes = store, arguments.whole("buffer_bytes", buffer_bytes)
        self._unfinished: dict[str, _Upload] = {}

    def open(self, path: str) -> File:
        """Ask for the object's size; ranges of it are read later."""
        import obstore

        with _as_os_errors(path):
            return _Object(self._store, path, obstore.head(self._store, path)["size"])

    def create(self, path: str) -> File:
        """Begin an object that `replace` puts under its name."""
        self._unfinished[path] = _Upload(self._store, path, self._buffer_bytes)
        return self._unfinished[path]

    def replace(self, source: str, target: str) -> None:
        """Put the object that was created as source under the name target."""
        upload = self._unfinished.pop(source, None)
        if upload is None:
            raise FileNotFoundError(2, "nothing was created under this name", source)
        with _as_os_errors(target):
            upload.finish(target)

    def remove(self, path: str) -> None:
        """Delete the object, or forget an unfinished one."""
        import obstore

        upload = self._unfinished.pop(path, None)
        with _as_os_errors(path):
            if upload is None:
                obstore.delete(self._store, path)
            else:
                upload.abandon()

    def sync_directory(self, path: str) -> None:
        """Nothing to do: a put that has returned is durable."""

    def list(self, path: str) -> list[Listed]:
        """List the objects below the prefix."""
        import obstore

        prefix = path.rstrip("/") + "/"
        with _as_os_errors(path):
            return [
                Listed(meta["path"][len(prefix) :], meta["size"], meta["last_modified"].timestamp())
                for batch in obstore.list(self._store, prefix)
                for meta in batch
                if "/" not in meta["path"][len(prefix) :]
            ]

    def make_directory(self, path: str) -> None:
        """Do nothing: a prefix needs not to exist."""

    def touch(self, path: str) -> None:
        """Do nothing: an object store has no cheap way to record a use."""

    def free_bytes(self, path: str) -> int:
        """Return a size that no budget reaches."""
        return _NO_END


class _Object:
    """An object that exists."""

    def __init__(self, store: ObjectStore, path: str, size: int) -> None:
        self._store, self._path, self._size = store, path, size

    def size(self) -> int:
        return self._size

    def read_into(self, buffers: Sequence[memoryview], offset: int) -> int:
        import obstore

        length = min(sum(b.nbytes for b in buffers), max(0, self._size - offset))
        if length == 0:
            return 0
        with _as_os_errors(self._path):
            data = memoryview(obstore.get_range(self._store, self._path, start=offset, length=length)).cast(
                "B"
            )
        at = 0
        for buffer in buffers:
            part = data[at : at + buffer.nbytes]
            buffer.cast("B")[: part.nbytes] = part
            at += part.nbytes
        return at

    def append(self, buffers: Sequence[Buffer]) -> None:
        raise OSError(9, "opened for reading", self._path)

    def sync(self) -> None:
        raise OSError(9, "opened for reading", self._path)

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        pass


class _Upload:
    """An object in the making: in memory while it is small, in parts under its temporary name when it is not."""

    def __init__(self, store: ObjectStore, path: str, buffer_bytes: int) -> None:
        self._store, self._path, self._limit = store, path, buffer_bytes
        self._memory = io.BytesIO()
        self._writer: Any = None
        self._size = 0

    def size(self) -> int:
        return self._size

    def read_into(self, buffers: Sequence[memoryview], offset: int) -> int:
        raise OSError(9, "opened for writing", self._path)

    def append(self, buffers: Sequence[Buffer]) -> None:
        import obstore

        with _as_os_errors(self._path):
            for buffer in buffers:
                self._size += memoryview(buffer).nbytes
                if self._writer is None and self._size > self._limit:
                    self._writer = obstore.open_writer(self._store, self._path)
                    self._writer.write(self._memory.getvalue())
                    self._memory = io.BytesIO()
                (self._memory if self._writer is None else self._writer).write(bytes(buffer))

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass

    def finish(self, target: str) -> None:
        import obstore

        if self._writer is None:
            obstore.put(self._store, target, self._memory.getvalue())
            return
        self._writer.close()
        obstore.rename(self._store, self._path, target)

    def abandon(self) -> None:
        """Forget the object. Parts that were sent were never completed, so no reader has seen them."""
        self._writer = None
        self._memory = io.BytesIO()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        pass


@contextmanager
def _as_os_errors(path: str) -> Iterator[None]:
    """Raise obstore's errors as the OSErrors of a file system."""
    from obstore.exceptions import BaseError, NotFoundError

    try:
        yield
    except (NotFoundError, FileNotFoundError) as error:
        raise FileNotFoundError(2, str(error), path) from error
    except BaseError as error:
        raise OSError(5, str(error), path) from error
