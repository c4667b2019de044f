"""A file system in memory that fails where it is told to, and can lose its power.

Data that was not synced may survive a crash in part: any subset of the appended sectors, with zeros between them;
of the directory operations any prefix, as a journal keeps them, or any subset, as nothing promises more.
Synced data always survive.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from llamay_kv.storage.vfs import Listed

SECTOR = 512


@dataclass
class Inode:
    data: bytearray = field(default_factory=bytearray)
    synced: int = 0  # so many bytes of data are on the platter
    used: float = 0.0

    def after_crash(self, rng: random.Random) -> Inode:
        survived = bytearray(self.data[: self.synced])
        size = rng.randint(self.synced, len(self.data))
        survived += bytes(size - self.synced)
        for at in range(self.synced, size, SECTOR):
            if rng.random() < 0.7:
                end = min(at + SECTOR, size)
                survived[at:end] = self.data[at:end]
        return Inode(survived, len(survived), self.used)


class CrashFile:
    def __init__(self, vfs: CrashVfs, inode: Inode) -> None:
        self._vfs, self._inode = vfs, inode

    def size(self) -> int:
        return len(self._inode.data)

    def read_into(self, buffers: Sequence[memoryview], offset: int) -> int:
        self._vfs.step("read")
        total = 0
        for buffer in buffers:
            part = self._inode.data[offset + total : offset + total + buffer.nbytes]
            buffer.cast("B")[: len(part)] = part
            total += len(part)
        return total

    def append(self, buffers: Sequence[bytes]) -> None:
        for buffer in buffers:
            data = bytes(buffer)
            room = self._vfs.capacity - sum(len(i.data) for i in self._vfs.inodes())
            self._inode.data += data[: max(0, room)]
            self._vfs.step("append")
            if len(data) > room:
                raise OSError(errno.ENOSPC, "No space left on device")

    def sync(self) -> None:
        self._vfs.step("sync")
        self._inode.synced = len(self._inode.data)

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


class PowerLoss(BaseException):
    """The power is gone: no code may handle this."""


class CrashVfs:
    """Args: fail_at: which operation raises OSError, counted from 1; crash_at: which one is the last ever."""

    def __init__(self, fail_at: int = 0, crash_at: int = 0, capacity: int = 1 << 40) -> None:
        self.names: dict[str, Inode] = {}
        self.durable: dict[str, Inode] = {}
        self.pending: list[tuple[str, str, Inode | None]] = []  # directory operations that are not synced
        self.fail_at, self.crash_at, self.capacity = fail_at, crash_at, capacity
        self.steps = 0
        self.clock = 0.0
        self.failed = ""  # the operation that was failed on purpose
        self.dead = False

    def inodes(self) -> list[Inode]:
        return list({id(i): i for i in [*self.names.values(), *self.durable.values()]}.values())

    def step(self, name: str) -> None:
        if self.dead:
            raise PowerLoss(name)
        self.steps += 1
        if self.steps == self.crash_at:
            self.dead = True
            raise PowerLoss(name)
        if self.steps == self.fail_at:
            self.failed = name
            raise OSError(errno.EIO, f"injected failure of {name}")

    def open(self, path: str) -> CrashFile:
        self.step("open")
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "No such file", path)
        return CrashFile(self, self.names[path])

    def create(self, path: str) -> CrashFile:
        self.step("create")
        if path in self.names:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        self.clock += 1
        inode = Inode(used=self.clock)
        self.names[path] = inode
        self.pending.append(("link", path, inode))
        return CrashFile(self, inode)

    def replace(self, source: str, target: str) -> None:
        self.step("replace")
        inode = self.names.pop(source)
        self.names[target] = inode
        self.pending.append(("rename", source + "\0" + target, inode))

    def remove(self, path: str) -> None:
        self.step("remove")
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "No such file", path)
        del self.names[path]
        self.pending.append(("unlink", path, None))

    def sync_directory(self, path: str) -> None:
        self.step("sync directory")
        self.durable = dict(self.names)
        self.pending.clear()

    def list(self, path: str) -> list[Listed]:
        self.step("list")
        prefix = path + "/"
        names = [n for n in self.names if n.startswith(prefix) and "/" not in n[len(prefix) :]]
        return [Listed(n[len(prefix) :], len(self.names[n].data), self.names[n].used) for n in names]

    def make_directory(self, path: str) -> None:
        self.step("make directory")

    def touch(self, path: str) -> None:
        self.step("touch")
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "No such file", path)
        self.clock += 1
        self.names[path].used = self.clock

    def free_bytes(self, path: str) -> int:
        self.step("free bytes")
        return self.capacity - sum(len(i.data) for i in self.inodes())

    def after_crash(self, seed: int) -> CrashVfs:
        """The files that the next boot finds."""
        rng = random.Random(seed)
        names = dict(self.durable)
        survived = self.pending[: rng.randint(0, len(self.pending))]
        if seed % 2:
            survived = [operation for operation in self.pending if rng.random() < 0.6]
        for operation, path, inode in survived:
            match operation:
                case "link":
                    assert inode is not None
                    names[path] = inode
                case "rename":
                    source, target = path.split("\0")
                    if (moved := names.pop(source, None)) is not None:
                        names[target] = moved
                case "unlink":
                    names.pop(path, None)
        survivor = CrashVfs()
        copies = {id(i): i.after_crash(rng) for i in names.values()}
        survivor.names = {path: copies[id(i)] for path, i in names.items()}
        survivor.durable = dict(survivor.names)
        survivor.clock = self.clock
        return survivor
