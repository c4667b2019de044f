"""The file operations of the package. All go through here, so that tests can fail or tear any of them."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, Self, runtime_checkable

from llamay_kv import arguments

Buffer = bytes | bytearray | memoryview


@runtime_checkable
class File(Protocol):
    """An open file."""

    def size(self) -> int:
        """Return the length in bytes."""
        ...

    def read_into(self, buffers: Sequence[memoryview], offset: int) -> int:
        """Fill the buffers from offset on; return how many bytes were read, less only at the end."""
        ...

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all of the buffers at the end of the file."""
        ...

    def sync(self) -> None:
        """Return once everything appended would survive a loss of power."""
        ...

    def close(self) -> None:
        """Close the file. An error here means that appended bytes may be lost."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *args: object) -> None: ...


class Listed(NamedTuple):
    """A file in a directory: its name, its length, and when it was last written or touched, in seconds."""

    name: str
    size: int
    used: float


@runtime_checkable
class Vfs(Protocol):
    """A file system. All operations raise OSError."""

    def open(self, path: str) -> File:
        """Open for reading."""
        ...

    def create(self, path: str) -> File:
        """Create a file that must not exist and open it for appending, readable by its owner alone."""
        ...

    def replace(self, source: str, target: str) -> None:
        """Give source the name target, atomically; a file that had it is gone."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file."""
        ...

    def sync_directory(self, path: str) -> None:
        """Return once names created, replaced or removed in the directory would survive a loss of power."""
        ...

    def list(self, path: str) -> list[Listed]:
        """Return the files in a directory."""
        ...

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, readable by the owner alone. It may exist."""
        ...

    def touch(self, path: str) -> None:
        """Say that the file was of use now."""
        ...

    def free_bytes(self, path: str) -> int:
        """Return how much room is left where the directory is."""
        ...


class _LocalFile:
    """A file of the operating system."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read_into(self, buffers: Sequence[memoryview], offset: int) -> int:
        total = 0
        pending = [b for b in buffers if b.nbytes]
        while pending:
            n = os.preadv(self._fd, pending[:_MAX_BUFFERS], offset + total)
            if n == 0:
                break
            total += n
            pending = _skip(pending, n)
        return total

    def append(self, buffers: Sequence[Buffer]) -> None:
        pending = [view for b in buffers if (view := memoryview(b).cast("B")).nbytes]
        while pending:
            pending = _skip(pending, os.writev(self._fd, pending[:_MAX_BUFFERS]))

    def sync(self) -> None:
        _sync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


_MAX_BUFFERS = 64  # far below IOV_MAX everywhere


def _sync(fd: int) -> None:
    """Make the data of a file durable. Its length is data; its times, which fsync would write too, are not."""
    if sys.platform == "darwin":  # where fsync leaves the data in the cache of the disk
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)


def _skip(buffers: list[memoryview], n: int) -> list[memoryview]:
    """Return the rest of the buffers after their first n bytes."""
    for i, buffer in enumerate(buffers):
        if n < buffer.nbytes:
            return [buffer[n:], *buffers[i + 1 :]]
        n -= buffer.nbytes
    return []


class LocalVfs:
    """The file system of the operating system."""

    def open(self, path: str) -> File:
        """Open a regular file for reading."""
        # Without O_NONBLOCK, opening a FIFO waits for somebody who writes to it.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            _require_regular(os.fstat(fd), path)
        except BaseException:
            os.close(fd)
            raise
        return _LocalFile(fd)

    def create(self, path: str) -> File:
        """Create a file that must not exist, with mode 0600."""
        return _LocalFile(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def replace(self, source: str, target: str) -> None:
        """Rename, replacing a regular file of that name. OSError where something else has it, such as a device."""
        _require_replaceable(target)
        os.replace(source, target)  # noqa: PTH105 - paths are strings all through this interface

    def remove(self, path: str) -> None:
        """Unlink a file."""
        os.unlink(path)  # noqa: PTH108

    def sync_directory(self, path: str) -> None:
        """Open the directory and fsync it."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def list(self, path: str) -> list[Listed]:
        """Scan the directory; files that vanish meanwhile are left out."""
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        found.append(Listed(entry.name, status.st_size, status.st_mtime))
        return found

    def make_directory(self, path: str) -> None:
        """Create it with mode 0700."""
        os.makedirs(path, mode=0o700, exist_ok=True)  # noqa: PTH103

    def touch(self, path: str) -> None:
        """Set its times to now."""
        os.utime(path)

    def free_bytes(self, path: str) -> int:
        """Ask the file system for the room that unprivileged users have."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize


_KINDS = {
    stat.S_IFDIR: (errno.EISDIR, "a directory"),
    stat.S_IFIFO: (errno.EINVAL, "a FIFO"),
    stat.S_IFSOCK: (errno.EINVAL, "a socket"),
    stat.S_IFCHR: (errno.EINVAL, "a device"),
    stat.S_IFBLK: (errno.EINVAL, "a device"),
}


def _require_regular(status: os.stat_result, path: str) -> None:
    """Raise OSError unless the status is that of a regular file."""
    if not stat.S_ISREG(status.st_mode):
        number, kind = _KINDS.get(stat.S_IFMT(status.st_mode), (errno.EINVAL, "something else"))
        raise OSError(number, f"not a regular file but {kind}", path)


def _require_replaceable(path: str) -> None:
    """Raise OSError if the name belongs to something that a file must not take the place of."""
    with contextlib.suppress(FileNotFoundError):
        _require_regular(os.stat(path), path)  # noqa: PTH116


def given_vfs(vfs: Vfs | None) -> Vfs:
    """Return the file system that was given, or that of the operating system. TypeError if it lacks an operation."""
    if vfs is None:
        return LocalVfs()
    missing = [
        name for name, f in vars(Vfs).items() if name[0] != "_" and callable(f) and not hasattr(vfs, name)
    ]
    if missing:
        arguments.refuse("vfs", f"an object with the operations of llamay_kv.Vfs ({', '.join(missing)})", vfs)
    return vfs


def write_atomically(vfs: Vfs, path: str, parts: Iterable[Sequence[Buffer]], *, durable: bool = True) -> None:
    """Write a file that appears whole and durable, or not at all.

    A temporary file beside it takes everything, is synced and renamed, and the directory is synced. Whatever
    fails on the way, the file that had the name is still there, and the temporary one is removed. A device, a FIFO, a
    socket or a directory of that name is refused with OSError before anything is written. Without `durable`
    nothing is synced: after a loss of power there may be the old file, the new one, or a torn one that its reader
    refuses.
    """
    if getattr(type(vfs), "replace", None) is LocalVfs.replace:  # which would refuse in the end
        _require_replaceable(path)
    directory = os.path.split(path)[0]
    batch = Batch(vfs, directory or ".", durable=durable)
    try:
        batch.add(path, parts=parts)
        batch.commit()
    finally:
        batch.abandon()


class Batch:
    """Files of one directory that become durable together: written, then synced, then renamed, then the directory.

    One sync for each file and one for each name make up most of small files' cost; in a batch the disk does the work of
    all of them at once. Call `abandon` at the end in any case.
    """

    def __init__(self, vfs: Vfs, directory: str, *, durable: bool = True) -> None:
        self._vfs, self._directory, self._durable = vfs, directory, durable
        self._open: list[tuple[File, str, str]] = []

    def add(
        self, path: str, buffers: Sequence[Buffer] = (), *, parts: Iterable[Sequence[Buffer]] = ()
    ) -> None:
        """Write a file under a temporary name: the buffers, then the parts, which may be made on the way."""
        directory, name = os.path.split(path)
        temporary = os.path.join(directory, f".{name}.{os.getpid():x}-{os.urandom(6).hex()}{TEMPORARY}")  # noqa: PTH118
        file = self._vfs.create(temporary)
        self._open.append((file, temporary, path))
        if buffers:
            file.append(buffers)
        for part in parts:
            file.append(part)

    def commit(self) -> None:
        """Give all files their names. If it fails on the way, some may have theirs, whole."""
        if not self._open:
            return
        for file, _, _ in self._open:
            if self._durable:
                file.sync()
            file.close()
        while self._open:
            _, temporary, path = self._open[0]
            self._vfs.replace(temporary, path)
            self._open.pop(0)
        if self._durable:
            self._vfs.sync_directory(self._directory)

    def abandon(self) -> None:
        """Remove the files that have no name yet."""
        for file, temporary, _ in self._open:
            with contextlib.suppress(OSError):
                file.close()
            with contextlib.suppress(OSError):
                self._vfs.remove(temporary)
        self._open.clear()


TEMPORARY = ".partial"
"""How the names of unfinished files end; one that is left over after a crash may be removed."""
