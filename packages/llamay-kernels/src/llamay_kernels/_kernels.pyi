from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import numpy
from numpy.typing import NDArray
from typing_extensions import Buffer


def isa() -> str:
    """The kernel set in use."""

def use_isa(name: str) -> None:
    """
    Use this kernel set from the next call on, in the whole process.

    Raises ValueError, naming the choices, if this CPU cannot run it. Results do not depend on the choice.
    """

def runnable_isas() -> list[str]:
    """The kernel sets this CPU runs, fastest first; 'portable' comes last."""

class PlanError(ValueError):
    """
    A plan that cannot be made; the message names the record and its error.
    """

class Threads:
    """
    A pool of threads; the calling thread is one of them. An idle pool costs nothing.

    n: 1 to 1024, more than there are cores is allowed. grain: how many multiplications are worth one more
    thread; small steps use fewer than n, 0 always uses all. Results never depend on either. Does not survive a fork:
    a child process that uses it gets a RuntimeError and has to make its own.
    """

    def __init__(self, n: int, grain: int = 500000) -> None: ...

    @property
    def n(self) -> int:
        """How many threads, the caller's included."""

    @property
    def grain(self) -> int:
        """Multiplications that are worth one more thread."""

    def __repr__(self) -> str: ...

class Plan:
    """
    A list of records, prepared once and replayed for every step (docs/plan.md).

    records: objects with op, outs, args, weights, attrs, or tuples of these. widths: float32 numbers a row
    of each value. weights: Weight objects, kept alive. max_rows: the most rows of one run.

    Immutable; runs of one plan may overlap, each takes memory of its own and returns it for the next.
    Raises PlanError naming the record.
    """

    def __init__(self, records: Iterable[object], widths: Sequence[int], weights: Iterable[Weight], *, max_rows: int) -> None: ...

    @property
    def output_width(self) -> int:
        """Columns of a run's out."""

    @property
    def max_rows(self) -> int:
        """The most rows of one run."""

    @property
    def vector_width(self) -> int:
        """
        Width of the vector that a row may have in place of a token; 0 where the plan takes tokens only.
        """

    @property
    def whole_texts(self) -> bool:
        """
        Whether rows read later rows of their text, so that a text has to be one run.
        """

    def describe(self) -> str:
        """
        The stages of the plan, one line each; threads wait for each other between stages.
        """

    def run(self, tokens: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], positions: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], leases: Sequence[object], counts: Sequence[int], logits: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], threads: Threads) -> None:
        """
        Compute one step, with the GIL released.

        tokens: int32 (n,), n <= max_rows. positions: int32 (n,), for the rotations. leases: one for each context in the step,
        objects with __llamay_kv_view__; counts: how many of the rows are the next positions of each, in order.
        logits: int32 (m,), the rows whose output is wanted; may be empty. out: float32 (m, output_width), written.

        Writes keys and values into the leases' reserved positions; the caller commits them. Raises ValueError for
        arguments that do not fit each other or the plan, BufferError for a view of another version, TypeError for an object
        without one. After an error nothing was written.
        """

    def measure(self, on: bool = True) -> None:
        """
        Start or stop measuring where runs spend their time; discards earlier measurements.
        """

    def profile(self) -> dict[str, Any]:
        """
        Seconds since measure(): runs, total, prepare, wait (at barriers), by operation and by record,
        as the calling thread saw them.
        """

    def run_rows(self, rows: Sequence[tuple[object | None, Sequence[int], int, int] | tuple[object | None, Sequence[int], int, int, Mapping[str, Any] | None]], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], threads: Threads, draws: Sequence[tuple[Sampler, int, int, Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None]] = ()) -> tuple[float, list[int], dict[int, str]]:
        """
        Compute one step, and choose tokens from its outputs, in one call with the GIL released.

        rows: for each context (lease, the next tokens, position of the first, how many of the last want an output), and
        perhaps a mapping with `vectors`: (int32 (m,), rows counted from the text's first, increasing; float32 (m, vector_width))
        of rows that are no tokens, `types`: int32 (n,), and `positions`: int32 (n, axes), which rotations turn by. The lease
        is None where the plan keeps nothing.
        out: float32 (at least so many, output_width); outputs are written in order. draws: (sampler, number of the output,
        position, history, mask) for each token that is to be chosen, as in sample_batch.

        Returns the seconds of the run, and the results of sample_batch. Raises the errors of run, before anything is written.
        """

    def begin_rows(self, rows: Sequence[tuple[object | None, Sequence[int], int, int] | tuple[object | None, Sequence[int], int, int, Mapping[str, Any] | None]], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], threads: Threads) -> BegunRows:
        """
        Have the other threads begin a step, and return at once, so that the caller can do something else before it helps:
        begin_rows and then finish do the same as run_rows. Raises the errors of run_rows, before anything is written.
        """

class Brake:
    """
    A flag that any thread may set, so that BegunRows.finish begins no further step by itself.
    """

    def __init__(self) -> None: ...

    def set(self, on: bool = True) -> None: ...

    @property
    def on(self) -> bool: ...

class BegunRows:
    """
    A step that has begun: the other threads work on it. Jobs of other callers wait until it ends, by `finish`,
    by `leave` or with this object.
    """

    def finish(self, draws: Sequence[tuple[Sampler, int, int, Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None]] = (), brake: Brake | None = None, ends: Sequence[int] = ()) -> tuple[float, list[int], dict[int, str], bool]:
        """
        Help, wait for the end, and choose tokens. Returns the results of run_rows, with the seconds counted from when
        the step began, and whether this object is now the next step. It is if a brake is given and not set, each context
        had one row, one token was drawn from each row, in the same order and none of `ends`, and each lease has another
        position for it: then the other threads have begun the next step when this returns. Raises RuntimeError if it has ended.
        """

    def leave(self) -> None:
        """
        Abandon the step: its outputs, and the contents of reserved positions, are undefined. Returns when no thread
        writes any more.
        """

FORMATS: dict[str, tuple[int, int]] = ...

PACKED_LAYOUT: int = 2

class Weight:
    """
    A matrix of one format, packed for the kernels: sixteen rows side by side, the same bytes in every kernel set.

    A vector has one row. Immutable; may be shared between threads.
    """

    def __init__(self, data: Buffer, format: str, rows: int, cols: int, *, name: str = '', threads: Threads | None = None, mapped: bool = False) -> None:
        """
        Pack rows x cols values. data: a buffer with exactly the bytes of the format, row by row as in a file; not kept.

        threads: the pool that packs; None packs on the calling thread. mapped: data is a read-only mapping of a file, whose
        pages are given up while it is packed; on other memory, the contents of data are lost. Raises ValueError when the format is unknown,
        cols is not a multiple of its block, or data has another size.
        """

    @property
    def format(self) -> str:
        """The name of the format, as in FORMATS."""

    @property
    def rows(self) -> int:
        """Number of rows (outputs)."""

    @property
    def cols(self) -> int:
        """Number of columns (inputs)."""

    @property
    def nbytes(self) -> int:
        """Bytes of the packed form."""

    @staticmethod
    def read_packed(file: int, offset: int, format: str, rows: int, cols: int, checksum: int, *, name: str = '', threads: Threads | None = None) -> Weight:
        """
        A weight from the bytes of `packed`, kept in a file under PACKED_LAYOUT. file: a descriptor that can be read at any offset.

        Raises ValueError where the bytes cannot be read, or do not match checksum.
        """

    def checksum(self, threads: Threads | None = None) -> int:
        """A checksum of the packed bytes, for read_packed. Not cryptographic."""

    @property
    def packed(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), writable=False)]:
        """The packed bytes, uint8 (nbytes,); a view."""

    @property
    def name(self) -> str:
        """The name in the file; may be empty."""

    def dequantize(self, rows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> NDArray[numpy.float32]:
        """
        Rows as float32 (n, cols); rows: int32 numbers, or None for all. Raises IndexError for a row that is not there.
        """

    def __repr__(self) -> str: ...

def dequantize(data: Buffer, format: str, count: int) -> NDArray[numpy.float32]:
    """
    The count values in data, a buffer of exactly their bytes in the format, as float32 (count,).

    Raises ValueError when the format is unknown or the sizes do not fit. Formulas: docs/arithmetic.md.
    """

def quantize(values: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], format: str) -> bytes:
    """
    Round float32 values, row by row, to the format; returns its bytes.

    Formats with one level of scales, but for IQ4_NL, give the bytes of GGML's reference quantizers; the others search for good scales.
    Raises ValueError when the format is unknown, a row is not a multiple of its block, or a format with blocks meets NaN or infinity.
    """

def matmul(weight: Weight, x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], *, bias: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, residual: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None = None, row_splits: Sequence[int] = [], group_splits: Sequence[int] = [], isa: str | None = None) -> NDArray[numpy.float32]:
    """
    x (n, cols) times the weight, transposed: float32 (n, rows), computed in the given pieces by the given kernel set.
    """

def quantize_activations(x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], kind: str, isa: str | None = None) -> NDArray[numpy.uint8]:
    """Rows of activations as the kernels store them: uint8 (n, bytes)."""

def dequantize_rows(weight: Weight, rows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, isa: str | None = None) -> NDArray[numpy.float32]:
    """Weight.dequantize by the given kernel set."""

class Sampler:
    """
    Chooses tokens from logits with llama.cpp's options, meaning and order; docs/sampling.md has each.

    Random numbers are Philox 4x32-10, keyed by seed and counted by (sequence, position), so a choice is a function of
    these options and of sample's arguments alone: nothing advances, and asking again gives the same token. Only mirostat
    learns from its choices; its state is `mu`. temperature 0 takes the likeliest token, among equals the lowest id.
    samplers: the stages in the order they are applied, None for penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p,
    xtc, temperature; mirostat 1 or 2 stands in place of all but the temperature. logit_bias: token -> bias to add;
    -inf excludes the token. dry_sequence_breakers: sequences of tokens. Raises ValueError naming the option.
    """

    def __init__(self, seed: int = 0, sequence: int = 0, *, temperature: float = 0.8, dynatemp_range: float = 0.0, dynatemp_exponent: float = 1.0, top_k: int = 40, top_p: float = 0.95, min_p: float = 0.05, typical_p: float = 1.0, top_n_sigma: float = -1.0, xtc_probability: float = 0.0, xtc_threshold: float = 0.1, repeat_penalty: float = 1.0, repeat_last_n: int = 64, presence_penalty: float = 0.0, frequency_penalty: float = 0.0, dry_multiplier: float = 0.0, dry_base: float = 1.75, dry_allowed_length: int = 2, dry_penalty_last_n: int = -1, dry_sequence_breakers: Sequence[Sequence[int]] = (), mirostat: int = 0, mirostat_tau: float = 5.0, mirostat_eta: float = 0.1, samplers: Sequence[str] | None = None, logit_bias: Mapping[int, float] | None = None, mu: float | None = None) -> None: ...

    def sample(self, logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], position: int, history: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, mask: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> int:
        """
        The token for `position` of the sequence.

        logits: float32 (V,). history: int32, the tokens before it, for penalties and dry. mask: uint32 (ceil(V / 32),), bit
        i % 32 of word i // 32 allows token i. Releases the GIL. Raises ValueError for a NaN, or if nothing can be chosen.
        """

    def sample_scored(self, logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], position: int, history: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, mask: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, top: int = 0) -> tuple[int, float, list[tuple[int, float]]]:
        """
        As `sample`, with natural-log probabilities of the distribution that the token was drawn from, after all stages:
        (token, its own, (id, logarithm) of the `top` likeliest, likeliest first).
        """

    def state(self) -> dict[str, Any]:
        """
        All options and `mu` as plain values: Sampler(**state) makes the same choices.
        """

    @property
    def mu(self) -> float:
        """
        The state of mirostat: the bits of surprise to cut at. Begins at 2 tau.
        """

    @mu.setter
    def mu(self, arg: float, /) -> None: ...

    def __getstate__(self) -> dict[str, Any]: ...

    def __setstate__(self, arg: dict[str, Any], /) -> None: ...

def sample_batch(rows: Sequence[tuple[Sampler, Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], int, Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None]], threads: Threads | None = None) -> tuple[list[int], dict[int, str]]:
    """
    One token for each row (sampler, logits, position, history, mask), arguments as of Sampler.sample, in one call
    without the GIL and with the help of threads where there are several. The same tokens as one by one.

    Returns the tokens, -1 where a row failed, and the error messages of those rows. A sampler may be in several rows
    unless it is a mirostat: that is a ValueError.
    """

def logprobs(logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], token: int, top: int = 0) -> tuple[float, list[tuple[int, float]]]:
    """
    Natural logarithms of the probabilities of float32 (V,) logits, before any sampling option: of `token`, and (id, logarithm) of the `top` likeliest, likeliest first.
    """

def philox4x32(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    """Philox 4x32-10: four random words of four counter and two key words."""

def fill_masks(rows: Sequence[tuple[object, Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu')]]], ends: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], threads: Threads | None = None) -> list[tuple[int, int, float]]:
    """
    The masks of several constraints in one call without the GIL, with the help of threads where they are given.

    rows: (capsule of abi/llamay/token_constraint.h, uint32 mask to fill), the constraints all different. ends: uint32,
    the bits of the tokens that end a text. Returns for each row how many tokens its mask allows (negative where the
    constraint failed: minus its status), how many of these do not end the text, and the seconds that filling it took. Raises
    TypeError for another object than such a capsule, ValueError for a mask that is too short.
    """

class Limits:
    """
    The best rates that were measured on this machine: the two that bound an engine.
    """

    @property
    def read_bandwidth(self) -> float:
        """Bytes a second, read from memory by all threads together."""

    @property
    def int8_ops(self) -> float:
        """
        Operations (a multiplication is one, its addition another) on 8-bit integers a second, in the kernel set in use.
        """

    @property
    def threads(self) -> int:
        """How many threads took part."""

    @property
    def isa(self) -> str:
        """The kernel set that was measured."""

    def __repr__(self) -> str: ...

def limits(threads: Threads) -> Limits:
    """
    Measure Limits with these threads, which takes about a second. On a busy machine the rates are the part that other processes leave.
    """

def compiled_for() -> str:
    """The kernel set in use, as the compiler of its operations knew it."""

def elementary(name: str, x: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], by: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> NDArray[numpy.float32]:
    """
    A function of float32 values, as the kernel set in use computes it: a kind of the operation unary, or erf or log1p, of which some kinds consist. With `by`, a kind's result times it.
    """

def affine(x: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], w: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, b: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> NDArray[numpy.float32]:
    """
    x * w + b of one float32 row; a vector of n values has one for each of n equal parts of the row.
    """

def normalise(kind: str, x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], eps: float, w: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, b: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> NDArray[numpy.float32]:
    """Rows of float32 values, normalised each by itself: kind rms or layer."""

def sincos(x: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> NDArray[numpy.float64]:
    """
    Sine and cosine of float64 angles up to 2^31, as the rotations compute them: (n, 2).
    """

def conv(x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], weight: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], bias: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, carried: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None = None, cuts: Sequence[int] = []) -> tuple[NDArray[numpy.float32], NDArray[numpy.float32]]:
    """
    A causal depthwise convolution of float32 rows (n, channels) of one text by (channels, taps), and the inputs that are carried over after them, (taps - 1, channels). The channels are computed in parts that end at cuts.
    """

def scan(r: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], w: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], k: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], v: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], a: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None = None, b: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None = None, state: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None = None, cuts: Sequence[int] = [], in_place: bool = False) -> tuple[NDArray[numpy.float32], NDArray[numpy.float32]]:
    """
    A scan of one head over float32 rows of one text: its outputs (n, v_dim) and its state (v_dim, k_dim) after them. The state's rows are computed in parts that end at cuts.
    """

def route(logits: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], kind: str, k: int, bias: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, groups: int = 1, groups_used: int = 1, norm: bool = False, scale: float = 1.0) -> tuple[NDArray[numpy.float32], NDArray[numpy.float32]]:
    """
    The ids, as float32, and weights of the k experts that each row of logits (n, experts) takes: (n, k) each.
    """

def combine(weights: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], y: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], cuts: Sequence[int] = []) -> NDArray[numpy.float32]:
    """The float32 rows y (n, width), weighed and added up in order."""

def paged_attention(q: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], k: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], v: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None, rows: Sequence[int], heads: int, kv_heads: int, v_dim: int, scale: float, window: int = 0, softcap: float = 0.0, precision: int = 0, page_tokens: int = 64, pieces: int = 1, copied: bool = False) -> NDArray[numpy.float32]:
    """
    Attention of rows q (rows, heads * k_dim) at increasing positions to k (positions, kv_heads * k_dim) and v, written to pages of a precision (enum llamay_kv_dtype). Without v, the values are the first v_dim numbers of the keys: read from them, or, if copied, from pages of values into which the stored numbers were copied. pieces: into which the blocks are cut, then merged.
    """
