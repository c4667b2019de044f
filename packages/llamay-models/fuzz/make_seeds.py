"""Write a small seed corpus for the fuzz targets: `python make_seeds.py FOLDER`.

Only the standard library is used, so that the fuzzers can be built and run without the package.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path


def text(s: str) -> bytes:
    """Return a GGUF string."""
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf(entries: list[bytes], tensors: list[bytes], data: bytes, version: int = 3) -> bytes:
    """Put a file together."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries)) + b"".join(entries + tensors)
    return head + bytes(-len(head) % 32) + data


def gguf_seeds() -> list[bytes]:
    """Return files that use every part of the format."""
    scalars = [
        text(f"k{kind}") + struct.pack("<I", kind) + value
        for kind, value in [
            (0, b"\1"),
            (1, b"\xff"),
            (2, b"\1\2"),
            (3, b"\1\2"),
            (4, bytes(4)),
            (5, bytes(4)),
            (6, struct.pack("<f", 1.5)),
            (7, b"\1"),
            (8, text("value")),
            (10, bytes(8)),
            (11, bytes(8)),
            (12, struct.pack("<d", 1.5)),
        ]
    ]
    strings = text("tokens") + struct.pack("<IIQ", 9, 8, 3) + text("a") + text("") + text("bcd")
    floats = text("scores") + struct.pack("<IIQ3f", 9, 6, 3, 0.0, -1.0, 2.0)
    alignment = text("general.alignment") + struct.pack("<II", 4, 32)
    one = text("one") + struct.pack("<IQQIQ", 2, 4, 2, 0, 0)
    two = text("two") + struct.pack("<IQIQ", 1, 256, 12, 32)
    return [
        gguf([], [], b""),
        gguf(scalars, [], b""),
        gguf([strings, floats, alignment], [one, two], bytes(32 + 144)),
        gguf([strings], [one], bytes(32), version=2),
    ]


def tokenizer_seeds() -> list[bytes]:
    """Return texts, each behind the byte that chooses what it goes through."""
    texts = [
        "aaaa ab  a\n\n\n",
        "<|x|> |>< <|x",
        "don't 12345 É日本 \u0301",
        "'S\r\n\t ",
        "a\0ab\0b\0a b\0aab",
    ]
    return [bytes([choice]) + t.encode() for choice in range(0, 256, 3) for t in texts]


def main() -> None:
    """Write both corpora."""
    root = Path(sys.argv[1])
    for name, seeds in {"gguf": gguf_seeds(), "tokenizer": tokenizer_seeds()}.items():
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        for i, seed in enumerate(seeds):
            (folder / f"seed{i:03d}").write_bytes(seed)


if __name__ == "__main__":
    main()
