"""Models for the engine's tests:

random weights, real kernels, and a vocabulary in which every token is one character.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

import llamay_kv
from llamay_models.architectures import ARCHITECTURES
from llamay_models.kv_cache.layout import cache_layout
from llamay_models.kv_cache.pool import kv_pool
from llamay_models.model import Model, Parts
from llamay_models.plan import Program, fuse, outline
from llamay_models.tensors import pack

from .hybrid import HYBRID
from .hybrid import KEYS as HYBRID_KEYS
from .turned import KEYS as TURNED_KEYS
from .turned import TURNED

# Token 0 ends a text, 1 to 4 are one character of four bytes in pieces, the rest are letters.
PIECES = "🦙".encode()


class Letters:
    """A tokenizer of single characters."""

    kind = "letters"
    eog = frozenset({0})
    vocab_size = 61
    kind, bos, adds_bos = "bpe", None, False

    def encode(self, text, *, add_special=True, parse_special=False, continuation=False):
        return [ord(c) - 92 for c in text]

    def is_special(self, token):
        return token == 0

    def token_bytes(self, token):
        return b"" if token == 0 else PIECES[token - 1 : token] if token < 5 else chr(token + 92).encode()

    def decode(self, tokens):
        return b"".join(self.token_bytes(t) for t in tokens).decode(errors="replace")

    def digest(self):
        return "letters"

    def stream_decoder(self, *, skip_special=False, keep=()):
        return LettersStream(self)


class Pairs(Letters):
    """Token 60 is the letters of tokens 10 and 11, and the tokenizer prefers it."""

    def token_bytes(self, token):
        return b"fg" if token == 60 else super().token_bytes(token)

    def encode(self, text, *, add_special=True, parse_special=False, continuation=False):
        out = []
        for t in super().encode(text):
            if t == 11 and out and out[-1] == 10:
                out[-1] = 60
            else:
                out.append(t)
        return out


class LettersStream:
    def __init__(self, tokenizer):
        self.tokenizer, self.rest = tokenizer, b""

    def push(self, token):
        self.rest += self.tokenizer.token_bytes(token)
        for keep in range(min(4, len(self.rest) + 1)):
            try:
                text = self.rest[: len(self.rest) - keep].decode()
            except UnicodeDecodeError:
                continue
            if keep and not PIECES.startswith(self.rest[len(self.rest) - keep :]):
                break
            self.rest = self.rest[len(self.rest) - keep :]
            return text
        text, self.rest = self.rest.decode(errors="replace"), b""
        return text

    def finish(self):
        text, self.rest = self.rest.decode(errors="replace"), b""
        return text


class Gate:
    """A constraint that allows everything, but waits before the second token until `open` is called.

    What is tested of a running text then does not depend on how fast it runs.
    """

    def __init__(self):
        self.late = False
        """Whether somebody waited until nobody opened."""
        self._tokens = 0
        self._open = threading.Event()

    def fill_mask(self, mask):
        mask[:] = 0xFFFFFFFF
        if self._tokens == 1 and not self._open.wait(10):
            self.late = True
            raise TimeoutError("nobody opened the gate")

    def accept(self, token):
        self._tokens += 1

    def open(self):
        self._open.set()


@pytest.fixture
def gate():
    it = Gate()
    yield it
    # What waits for the thread that stands at the gate would wait for nothing, and the test would pass.
    assert not it.late, (
        "nobody opened the gate; who asks the engine's thread for something cannot open it after that"
    )


@pytest.fixture
def pairs():
    return Pairs()


@pytest.fixture(scope="session")
def tokenizer():
    return Letters()


@pytest.fixture(scope="session")
def small_model(small_model, backend):
    """Fewer layers for the slow backend: of each kind that there is, one."""

    def make(name, **keys):
        few = {"block_count": 1}
        if name == "gemma3":
            few = {"block_count": 2, "attention.sliding_window_pattern": 2}
        keys = {**few, **keys} if backend.name == "stand-in" else keys
        own = {"hybrid": HYBRID_KEYS, "turned": TURNED_KEYS}.get(name, {})
        with mock.patch.dict(ARCHITECTURES, {"hybrid": HYBRID, "turned": TURNED}):
            return small_model(name, **{**keys, **own})

    return make


@pytest.fixture
def make_model(small_model, backend) -> Callable[..., Model]:
    """`make_model("qwen3", page_tokens=16)`; closed at the end of the test."""
    made = []

    def make(
        name: str = "llama",
        *,
        seed: int = 0,
        page_tokens: int = 16,
        precision: str = "f32",
        budget: int = 64 << 20,
        ctx_size: int = 256,
        max_rows: int = 64,
        max_sequences: int = 16,
        threads: int = 1,
        prefix_cache: int = 0,
        disk_cache: llamay_kv.DiskCache | None = None,
        max_queue: int = 1024,
        speculation: bool = True,
        draft: Model | None = None,
        spill: llamay_kv.Spill | None = None,
        tokenizer: Letters | None = None,
        **keys: object,
    ) -> Model:
        small = small_model(name, seed=seed, **keys)
        base = small.trace()
        program = fuse(base)
        weights = pack(program.tensors, backend.threads(1), backend=backend)
        model = Model(
            Parts(
                path=Path("small.gguf"),
                name=f"small {name}",
                architecture=name,
                config=small.config,
                metadata={},
                base=outline(base),
                program=Program(program.records, program.widths, tuple(weights), program.names),
                backend=backend,
                weights=weights,
                plan=backend.plan(program.records, program.widths, weights, max_rows=max_rows),
                threads=backend.threads(threads),
                tokenizer=tokenizer or Letters(),
                pool=kv_pool(cache_layout(program, precision), page_tokens, budget, backend, spill),
                precision=precision,
                dequantized=False,
                ctx_size=ctx_size,
                max_sequences=max_sequences,
                sha256=lambda: f"{seed:064x}",
                prefix_cache=prefix_cache,
                disk_cache=disk_cache,
                max_queue=max_queue,
                speculation=speculation,
                draft=draft,
            )
        )
        made.append(model)
        return model

    yield make
    for model in made:
        model.close()
