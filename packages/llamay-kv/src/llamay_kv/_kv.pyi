from collections.abc import Iterator, Sequence
from typing import Self, overload

import numpy
from typing_extensions import CapsuleType


def kv_view_version() -> tuple[int, int]:
    """
    Major and minor version of abi/llamay/kv_view.h as this module was compiled with it.
    """

class OutOfPagesError(MemoryError):
    """
    The budget of the pool does not suffice. The call that raises it has changed nothing.
    """

class ContextBusyError(RuntimeError):
    """
    The context is in use: it has an open lease, or another thread is at work on it.
    """

class PagesLostError(RuntimeError):
    """
    Spilled pages could not be read back. The context that needed them was closed.
    """

class ClosedError(ValueError):
    """A context or a lease was used after its end."""

def crc64(data: bytes | bytearray | memoryview | numpy.ndarray, previous: int = 0) -> int:
    """
    CRC-64/NVME of a buffer, continuing from the CRC of the bytes before it.
    """

class Pool:
    """Pages for many contexts. Use llamay_kv.Pool."""

    def __init__(self, groups: Sequence[tuple[int, int, int, int, Sequence[tuple[int, int, int, int]]]], page_tokens: int, budget_bytes: int | None, pages: int | None, spill: object = None, spill_bytes: int = 0, allocator: object = None, checkpoint_bytes: int | None = None) -> None: ...

    @property
    def page_tokens(self) -> int:
        """Positions in a page."""

    @property
    def budget_bytes(self) -> int:
        """The most bytes that the pages of all groups together take."""

    @property
    def used_bytes(self) -> int:
        """Bytes of all pages with a holder, exactly."""

    @property
    def peak_bytes(self) -> int:
        """The highest used_bytes so far."""

    @property
    def page_bytes(self) -> tuple[int, ...]:
        """The size of a page, for each group."""

    @property
    def live_pages(self) -> tuple[int, ...]:
        """Pages with a holder, for each group."""

    def packed_bytes(self, group: int, positions: int) -> int:
        """Bytes of payload in so many positions of a group."""

    def trim(self) -> int:
        """Give the memory of free pages back to the system; returns their bytes."""

    def holders(self, group: int, page: int) -> int:
        """How many blocks of page tables list the page."""

    def audit(self) -> None:
        """
        Recount every page, block and byte from the live tables; raises RuntimeError at the first difference.

        For quiet moments: no other thread may use the pool meanwhile.
        """

    def spill_out(self, bytes: int) -> int:
        """
        Write idle pages to the spill file until so many bytes are free; returns the bytes that were freed.

        A pool that runs out of pages does this by itself. Without a spill file it does nothing.
        """

    def spill_counters(self) -> dict[str, int]:
        """
        Sizes of the spill file, and sums since the pool was made; empty without a spill file.
        """

class Context:
    """Token ids and the pages of their K/V. Use llamay_kv.Context."""

    def __init__(self, pool: Pool) -> None: ...

    @property
    def pool(self) -> Pool:
        """The pool its pages are in."""

    def __len__(self) -> int: ...

    @property
    def closed(self) -> bool:
        """Whether close() was called."""

    @property
    def leased(self) -> bool:
        """Whether a lease is open."""

    @overload
    def fork(self) -> Self:
        """
        A context with the same tokens that shares every page until one of the two writes.

        Takes the same time at any length and allocates no page.
        """

    @overload
    def fork(self, n: int) -> list[Self]:
        """n such forks."""

    def truncate(self, n: int) -> None:
        """
        Keep the first n tokens. ValueError if a page that n tokens need was dropped behind a window, or if a
        recurrent group has no state there: then it names the nearest checkpoints.
        """

    def nearest(self, n: int) -> int:
        """
        The largest length up to n that truncate can go to now: n itself, or a checkpoint, or 0.
        """

    @property
    def checkpoints(self) -> list[int]:
        """
        Lengths whose recurrent states are kept, so that they can be truncated to.
        """

    def checkpoint(self) -> None:
        """
        Keep the present recurrent state as a checkpoint. Nothing without recurrent groups.
        """

    def forget_checkpoint(self, at: int) -> None:
        """Give up the checkpoint at so many tokens. ValueError if there is none."""

    def forget_checkpoints(self, before: int) -> None:
        """Give up the checkpoints of fewer tokens than this."""

    def retain(self) -> Self:
        """
        Count one more owner, and return the context: its pages are released when every owner has closed it.
        """

    def close(self) -> None:
        """
        Give up all pages, once every owner has closed the context. Views stay valid until they are released. Closing
        twice does nothing.
        """

    @property
    def tokens(self) -> list[int]:
        """The token ids, as a list."""

    def token_slice(self, begin: int, end: int) -> list[int]:
        """Some of the token ids."""

    def reserve(self, n: int, first: Sequence[int] | None = None, *, states: Sequence[int] | None = None) -> Lease:
        """
        Make the next n positions writable and return the lease on them.

        Takes pages and clones a shared last page; raises OutOfPagesError, having changed nothing, if the budget does
        not reach, and ContextBusyError while another lease is open. For a context without tokens, first may say for
        each group which position will be the first to be filled: no page before it is taken. In recurrent groups
        there is room for the state after all n, and after each of states (numbers of new tokens) besides: a commit
        can end at these.
        """

    def first_positions(self) -> list[int]:
        """The first position that is still there, for each group."""

    def page_numbers(self, group: int) -> list[int]:
        """
        The pages of a group in position order, -1 for a dropped one; in a recurrent group the pages of the checkpoints and of
        the present state.
        """

    @property
    def side(self) -> dict[str, tuple[int, bytes]]:
        """
        Opaque states of this very length, by name: (version, data). Forks carry them; every change of tokens or
        pages clears them.
        """

    @side.setter
    def side(self, value: dict[str, tuple[int, bytes]], /) -> None: ...

    @property
    def owner(self) -> str | None:
        """The owner, or None. Forks and snapshots inherit it."""

    @owner.setter
    def owner(self, value: str | None, /) -> None: ...

    @property
    def marking(self) -> str | None:
        """
        The confidentiality, in words of the caller, or None. Forks and snapshots inherit it, and it cannot be removed.
        """

    @marking.setter
    def marking(self, value: str | None, /) -> None: ...

    def __llamay_kv_view__(self, major: int = 1) -> CapsuleType:
        """A view for reading, as abi/llamay/kv_view.h describes it."""

    def read(self, layer: int, begin: int = 0, end: int | None = None, *, raw: bool = False, out: tuple[numpy.ndarray, numpy.ndarray] | None = None) -> tuple[numpy.ndarray, numpy.ndarray]:
        """
        Copies of K (n, kv_heads, k_dim) and V (n, kv_heads, v_dim) of positions [begin, end).

        float32, or with raw the precision they are stored in; into the two arrays of out if it is given, which saves
        the system the making of fresh memory.
        """

    def overwrite(self, layer: int, begin: int, k: numpy.ndarray, v: numpy.ndarray) -> None:
        """
        Replace K (n, kv_heads, k_dim) and V (n, kv_heads, v_dim) from position begin on, for this context alone.

        float32 or float16; rounded to nearest even where the group stores less. Forks keep the old values.
        """

    def page(self, layer: int, index: int) -> tuple[numpy.ndarray, numpy.ndarray]:
        """
        Read-only arrays (tokens, kv_heads, dim) over the memory of a page, K dimension-major, without a copy.

        They keep the page alive and unchanged, even if the context goes on.
        """

    def scales(self, layer: int, index: int) -> tuple[numpy.ndarray | None, numpy.ndarray | None]:
        """
        The float32 scales (tokens, kv_heads) of a page's K and V, without a copy; None where they are not int8.
        """

    def state(self, layer: int, at: int | None = None) -> tuple[numpy.ndarray, numpy.ndarray]:
        """
        Read-only arrays over a recurrent state, (heads, k_dim) and (heads, v_dim), without a copy.

        The present one, or that of a checkpoint. ValueError if there is none.
        """

    def checksum(self) -> int:
        """
        CRC-64/NVME of the context: token ids as a snapshot has them, then for each layer K and V as float32 or, where it is recurrent,
        for each checkpoint and the present state its length and its two parts.
        """

    def pack_into(self, group: int, begin: int, end: int, out: numpy.ndarray) -> None:
        """
        Write positions [begin, end) of a group into out, in the order of a snapshot's chunk.
        """

    def packed_view(self, group: int, begin: int, end: int) -> numpy.ndarray | None:
        """The same without a copy, where one page holds exactly that; else None."""

    def pack_state(self, group: int, at: int) -> bytes:
        """
        The bytes of all layers of a group after so many tokens, in the order of a snapshot.
        """

class Lease:
    """
    The right to write the next positions of a context, until commit or release.
    """

    @property
    def context(self) -> Context:
        """The context it is a lease on."""

    @property
    def begin(self) -> int:
        """The first position that may be written."""

    def __len__(self) -> int: ...

    @property
    def open(self) -> bool:
        """Whether it has not ended."""

    @property
    def states(self) -> list[int]:
        """
        The numbers of reserved tokens after which a recurrent state is to be written, increasing. The last is that of all.
        """

    def commit(self, tokens: Sequence[int] | numpy.ndarray, *, checkpoints: bool = False) -> None:
        """
        Keep the first len(tokens) reserved positions, under these ids, and give up the others. Ends the lease.

        Recurrent groups need a state after the last one, see reserve; with checkpoints the reserved states before it
        are kept too.
        """

    def release(self) -> None:
        """End the lease and keep nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *args: object) -> None: ...

    def __llamay_kv_view__(self, major: int = 1) -> CapsuleType:
        """A view for one step, as abi/llamay/kv_view.h describes it."""

    def read(self, layer: int, begin: int = 0, end: int | None = None, *, raw: bool = False, out: tuple[numpy.ndarray, numpy.ndarray] | None = None) -> tuple[numpy.ndarray, numpy.ndarray]:
        """
        Copies of K and V as Context.read gives them, of reserved positions too: values written so far, anything elsewhere.
        """

    def read_state(self, layer: int, *, after: int = 0) -> tuple[numpy.ndarray, numpy.ndarray]:
        """
        Copies of a recurrent state, float32 (heads, k_dim) and (heads, v_dim).

        With after=0 the state that the step begins with, zeros where there are no tokens; otherwise the state that was
        written after that many of the reserved tokens. ValueError if none was written.
        """

    def write(self, layer: int, k: numpy.ndarray, v: numpy.ndarray, *, offset: int = 0) -> None:
        """
        Store K (n, kv_heads, k_dim) and V (n, kv_heads, v_dim), float32 or float16, from position begin + offset on.
        """

    def write_state(self, layer: int, k: numpy.ndarray, v: numpy.ndarray, *, after: int | None = None) -> None:
        """
        Store the recurrent state (heads, k_dim) and (heads, v_dim), float32 or float16, that all reserved tokens
        leave, or the first `after` of them.
        """

    def unpack_from(self, group: int, begin: int, end: int, data: bytes | memoryview | numpy.ndarray) -> None:
        """Fill positions [begin, end) of a group from a snapshot's chunk."""

    def packed_target(self, group: int, begin: int, end: int) -> numpy.ndarray | None:
        """
        The memory that unpack_from would fill, where one page is exactly that; else None.
        """

    def unpack_state(self, group: int, after: int, data: bytes | memoryview | numpy.ndarray) -> None:
        """
        Fill the state after the first `after` reserved tokens from the bytes of pack_state.
        """

class PrefixTree:
    """Computed prefixes. Use llamay_kv.PrefixTree."""

    def __init__(self, pool: Pool, context_class: type, budget_bytes: int, per_token: float, per_token_and_position: float) -> None: ...

    def insert_in(self, context: Context, space: bytes, tenant: bytes, shared: int) -> int: ...

    def match_in(self, tokens: Sequence[int] | numpy.ndarray, space: bytes, tenant: bytes) -> Context: ...

    def trace_in(self, tokens: Sequence[int] | numpy.ndarray, space: bytes, tenant: bytes) -> tuple[int, int, bool, int]: ...

    def pin_in(self, tokens: Sequence[int] | numpy.ndarray, space: bytes, tenant: bytes) -> tuple[int, int]: ...

    def entries_in(self, space: bytes) -> list[tuple[int, int, int, list[int], list[int], list[int]]]:
        """
        The stored nodes, depth first: (begin, owner, pins, tokens, page of each group, lengths with a state).

        Owner 0 stands for all tenants; children come by owner and then by tokens.
        """

    def spaces(self) -> list[bytes]:
        """The spaces that have entries."""

    def unpin(self, number: int) -> None: ...

    def reclaim(self, bytes: int) -> int:
        """
        Evict leaves until so many bytes are free in the pool; returns the bytes that were freed.

        Pages that a context uses stay. Those that other trees hold too are given up after all others, and become free
        with the last of these trees. A pool that runs out of pages asks all of its trees by itself.
        """

    def clear(self) -> None:
        """Evict everything, pins included."""

    def counters(self) -> dict[str, int]:
        """Sizes, and sums since the tree was made."""

UNKNOWN_TOKEN: int = -1

class Rows:
    """
    The ids of rows that are not tokens, in the order of the rows: a sequence of negative integers.

    An id means its row for as long as this object lives, and for as long as a context, a prefix tree or a
    save that waits has it. Copies of the ids hold nothing: keep this beside them.
    """

    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, index: int, /) -> int: ...

    @overload
    def __getitem__(self, index: slice, /) -> list[int]: ...

    def __iter__(self) -> Iterator[int]: ...

    @property
    def digest(self) -> bytes:
        """The 32 bytes that name the vectors of the rows."""

class HeldRows:
    """Rows whose ids keep their meaning for as long as this object lives."""

def rows(digest: bytes, n: int) -> Rows:
    """The first n rows of a digest."""

def digest_of(row: int) -> tuple[bytes, int] | None:
    """The digest and the index of a row; None if the id is no row's."""

def hold_rows(ids: Sequence[int] | numpy.ndarray) -> HeldRows:
    """
    Hold the rows among some ids. ValueError at an id that is neither a token, unknown nor a row.
    """

def token_ids(tokens: Sequence[int] | numpy.ndarray) -> numpy.ndarray:
    """
    The ids of tokens or rows as int32. TypeError or ValueError at what is none.
    """

def describe_ids(ids: Sequence[int] | numpy.ndarray) -> tuple[numpy.ndarray, bytes]:
    """
    The ids as files have them, which is the same in every process, and the table of the rows among them.
    """

def resolve_ids(ids: Sequence[int] | numpy.ndarray, table: bytes) -> tuple[numpy.ndarray, HeldRows]:
    """
    The ids of this process for the result of describe_ids, and an object that holds their rows. ValueError for anything else.
    """
