"""Pools and contexts: the native classes, with the methods that need files or mappings in Python."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Self

from llamay_kv import _kv, arguments
from llamay_kv._kv import Rows
from llamay_kv.layout import Layout, Precision

if TYPE_CHECKING:
    import numpy as np

    from llamay_kv.identity import Identity
    from llamay_kv.snapshots.format import Legacy, Manifest
    from llamay_kv.storage.crypto import Key, Keys
    from llamay_kv.storage.spill import Spill
    from llamay_kv.storage.vfs import Vfs

Sequence.register(Rows)


class Pool(_kv.Pool):
    """Pages for many contexts, under one budget in bytes.

    Args:
        layout: the groups of layers, see `Layout`.
        page_tokens: positions in a page, a power of two from 16 to 1024.
        budget_bytes: the most bytes that all pages together take. Address space is reserved at once,
            memory when it is used.
        pages: instead of budget_bytes, the number of pages of every group.
        spill: where idle pages go when the budget does not suffice.
        allocator: the memory to use: an object with `__llamay_allocator__` (abi/llamay/allocator.h), or a callable
            that takes a number of bytes and returns a writable buffer, which is kept as long as the pool. It is
            called once for each group.
        checkpoint_bytes: the most bytes that the checkpoints of one context take, in layouts with recurrent groups; at
            least one state of all of them. Beyond it the last checkpoint stays, and the others become sparser the
            further they are from the end. Without it only the budget bounds them.

    A pool may be used from many threads. The sizes that it reports are exact to the byte.

    """

    layout: Layout

    def __init__(
        self,
        layout: Layout,
        page_tokens: int = 64,
        *,
        budget_bytes: int | None = None,
        pages: int | None = None,
        spill: Spill | None = None,
        allocator: Callable[[int], object] | object | None = None,
        checkpoint_bytes: int | None = None,
    ) -> None:
        arguments.instance("layout", layout, Layout)
        if spill is not None:
            from llamay_kv.storage.spill import Spill

            arguments.instance("spill", spill, Spill)
        store = None if spill is None else spill.open()
        super().__init__(
            layout.native(),
            page_tokens,
            budget_bytes,
            pages,
            store,
            0 if spill is None else spill.bytes,
            allocator,
            checkpoint_bytes,
        )
        self.layout = layout
        if store is not None:
            store.slots(self.page_bytes)

    def context(self) -> Context:
        """Return a new context without tokens."""
        return Context(self)

    def rows(self, digest: bytes, n: int) -> Rows:
        """Return ids for the first n rows of something other than text, such as the embeddings of a picture.

        Args:
            digest: 32 bytes, computed from everything that the rows depend on beside the positions before them. For a
                picture that is its pixels, their preparation, the weights of the encoder and the grid of patches;
                SHA-256 over tagged fields (`Identity(...).digest`) is a good digest. Rows with the same digest and
                index count as equal.
            n: how many; at least 1.

        The ids are negative, and stand in a context, a prefix tree, a snapshot and a disk cache where token ids do.
        The ids are exact: one digest and index have one id, in all pools of the process, for as long as the id has a
        holder: the returned object, a context that has committed the id, a prefix tree, or a save that waits to be
        written. Keep the returned object beside the vectors; plain copies of the ids hold nothing.

        Raises ValueError unless the digest has 32 bytes and n is from 1 to 2**31 - 1, and if no ids are left.

        """
        return _kv.rows(digest, n)

    def digest_of(self, row: int) -> tuple[bytes, int] | None:
        """Return the digest and the index of a row; None if it is a token, unknown or no row that is held."""
        return _kv.digest_of(row)

    def restore(
        self,
        path: str | PathLike[str],
        *,
        identity: Identity | None = None,
        legacy: Legacy = "warn",
        owner: str | None = None,
        markings: Collection[str] = (),
        keys: Keys = None,
        digest: bytes | None = None,
        vfs: Vfs | None = None,
    ) -> Context:
        """Return the context that was saved at path, with its side state.

        Args:
            path: the file.
            identity: the identity that the state must have. Without it only the layout is compared.
            legacy: how to treat a snapshot without identity, if one is asked for: restore it with a
                LegacyWarning ("warn"; refused all the same if it has a marking), without one ("allow"), or not
                at all ("refuse").
            owner: the owner on whose behalf the snapshot is restored. A snapshot of another owner is refused.
            markings: the markings that the caller may handle. A snapshot with another one is refused.
            keys: the keys that the file may be encrypted under.
            digest: `Manifest.digest` of the snapshot that is wanted, as `save` returned it. An encrypted snapshot
                has one that no other has, so an older file that was put back in its place is refused.
            vfs: where files live, for tests and other stores.

        Every byte is verified. Raises SnapshotError, naming the part that is wrong, IdentityMismatchError, naming
        the field that differs, NotAllowedError, or OutOfPagesError; the pool is then as it was.

        A snapshot that was saved in less precision than it was computed in restores into a pool of either precision,
        with a ConvertedWarning unless the identity asks for it (`identity.stored_as("q8")`).

        """
        from llamay_kv.snapshots.restorer import restore_into  # loads numpy

        context = self.context()
        restore_into(
            context,
            self.layout,
            path,
            identity=identity,
            legacy=legacy,
            owner=owner,
            markings=markings,
            keys=keys,
            digest=digest,
            vfs=vfs,
        )
        return context

    def __repr__(self) -> str:
        spilled = self.spill_counters().get("spilled_bytes", 0)
        return (
            f"<Pool {self.used_bytes} of {self.budget_bytes} bytes used, "
            f"{f'{spilled} spilled, ' if spilled else ''}"
            f"pages of {self.page_tokens}, {len(self.layout.groups)} group(s)>"
        )


class Context(_kv.Context):
    """Token ids and the pages that hold their K/V. A context is a value: a fork costs the same at any length.

    Between `reserve` and the end of its lease a context belongs to the thread that reserved.
    Used as a context manager, the context is closed at the end.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def pool(self) -> Pool:
            """The pool its pages are in."""
            ...

    def extend(
        self,
        tokens: Sequence[int] | np.ndarray,
        rows: Mapping[int, tuple[np.ndarray, np.ndarray]],
        *,
        states: Mapping[int, tuple[np.ndarray, np.ndarray]] | None = None,
    ) -> None:
        """Append tokens together with their K/V: reserve, write and commit in one.

        Args:
            tokens: the ids of the tokens.
            rows: for each layer with positions K (n, kv_heads, k_dim) and V (n, kv_heads, v_dim).
            states: for each recurrent layer the state (heads, k_dim) and (heads, v_dim) after the last token.

        If anything fails, the context is as it was before. ValueError names a layer that is missing or not one of
        the layout.

        """
        ids = _kv.token_ids(tokens)
        arguments.mapping("rows", rows)
        arguments.mapping("states", {} if states is None else states)
        given = {**rows, **(states or {})}
        if len(given) != len(rows) + len(states or {}):
            raise ValueError("a layer is in rows and in states")
        wanted = {layer.index for group in self.pool.layout.groups for layer in group.layers}
        if given.keys() != wanted:
            odd = min(given.keys() ^ wanted, key=str)
            raise ValueError(
                f"layer {odd!r} is {'missing' if odd in wanted else 'not one of the layout'}: every layer needs its K/V"
            )
        with self.reserve(len(ids)) as lease:
            for layer, both in rows.items():
                k, v = arguments.pair(f"rows[{layer}]", both)
                if (shape := getattr(k, "shape", ())) and shape[0] != len(ids):
                    raise ValueError(f"layer {layer} has {shape[0]} positions for {len(ids)} tokens")
                lease.write(layer, k, v)
            for layer, both in (states or {}).items():
                lease.write_state(layer, *arguments.pair(f"states[{layer}]", both))
            lease.commit(ids)

    def save(
        self,
        path: str | PathLike[str],
        *,
        identity: Identity | None = None,
        side: Mapping[str, tuple[int, bytes]] | None = None,
        key: Key | None = None,
        precision: Precision | None = None,
        durable: bool = True,
        vfs: Vfs | None = None,
    ) -> Manifest:
        """Write the context to one file, which appears whole or not at all.

        Args:
            path: the file; an existing one is replaced. A device, a FIFO, a socket or a folder is refused with OSError.
            identity: everything that the K/V depends on; `restore` compares it.
            side: opaque states by name as (version, data); by default the side state of the context.
            key: encrypts everything but the manifest, which is authenticated.
            precision: the precision to store f32 and f16 groups in, if it is a lower one. Such a file is smaller and
                not exact: its manifest and its identity (`Identity.stored_as`) say so.
            durable: return only when the file would survive a loss of power. Otherwise the file becomes durable within
                seconds, and a loss of power before may leave the old file, or a torn one that is refused.
            vfs: where files live, for tests and other stores.

        Owner and marking of the context go with it. Returns the manifest that was written.

        """
        from llamay_kv.snapshots.writer import save  # loads numpy

        return save(
            self,
            self.pool.layout,
            path,
            identity=identity,
            side=side,
            key=key,
            precision=precision,
            durable=durable,
            vfs=vfs,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return "<Context closed>"
        if self.leased:  # perhaps to another thread, which alone may read the checkpoints
            return f"<Context of {len(self)} tokens, leased>"
        points = f", checkpoints at {', '.join(map(str, points))}" if (points := self.checkpoints) else ""
        return f"<Context of {len(self)} tokens{points}>"
