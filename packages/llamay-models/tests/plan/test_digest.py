"""Two programs have the same digest if and only if they do and keep the same."""

from dataclasses import replace

import numpy as np
import pytest

from llamay_models.architectures import ARCHITECTURES
from llamay_models.plan import Program, Record, digest_memories, digest_operations, outline

# A change of these means that what was stored before is not found again: only where its bits would be others.
KNOWN = {
    "llama": (
        "2ad31f5db362d16de7cbc79c3db95de8f1514b96598ce054b7454d634e155fb7",
        "1fe7cde21c876feb183dd90e203e7030ddeec4f6bea8b27e9e8e248e16c32617",
    ),
    "mamba2": (
        "c64e4f65300c5038644a1f272ab2836c114a3286652058a0610d9928e2bf80d2",
        "fe47b5f5208377eb43aa7d6b8176b869df84dad1339250d52306df8636c8e464",
    ),
}


def changed(program, op, **attrs):
    """Return the program with other attributes of the first record of an operation."""
    records = list(program.records)
    index = next(i for i, r in enumerate(records) if r.op == op)
    records[index] = replace(records[index], attrs={**records[index].attrs, **attrs})
    return replace(program, records=tuple(records))


def test_names_and_weights_do_not_count(small_model):
    one, other = small_model("qwen3", seed=1).trace(), small_model("qwen3", seed=2).trace()
    renamed = replace(outline(other), names=tuple(f"v{i}" for i in range(len(other.names))))
    assert digest_operations(one) == digest_operations(renamed)
    assert digest_memories(one) == digest_memories(renamed)


def test_architectures_differ(small_model):
    programs = [small_model(name).trace() for name in sorted(ARCHITECTURES)]
    # A mixture of experts keeps what its dense relative keeps.
    assert len({digest_operations(p) for p in programs}) == len(programs)
    kept = {
        name: digest_memories(small_model(name).trace()) for name in ("qwen3", "qwen3moe", "mamba2", "bert")
    }
    assert kept["qwen3"] == kept["qwen3moe"]
    assert len(set(kept.values())) == 3


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("attention", {"scale": 0.5}),
        ("attention", {"window": 7}),
        ("attention", {"mask": "full"}),
        ("rope", {"style": "half"}),
        ("rope", {"freqs": np.linspace(1.0, 0.1, 8)}),
        ("rope", {"offset": 1}),
        ("rms_norm", {"eps": 1e-4}),
        ("rms_norm", {"groups": 2}),
        ("unary", {"kind": "relu"}),
    ],
)
def test_every_attribute_counts(small_model, op, attrs):
    program = small_model("llama").trace()
    other = changed(program, op, **attrs)
    assert digest_operations(other) != digest_operations(program)
    assert (digest_operations(other, [op]) == digest_operations(program, [op])) is True


def test_an_attribute_that_says_what_its_absence_says_leaves_no_trace(small_model):
    program = small_model("llama").trace()
    same = changed(changed(program, "attention", mask="causal", v_from_k=0), "rope", offset=0, axes=None)
    assert digest_operations(same) == digest_operations(program)


def test_what_reads_what_and_how_wide_it_is_count():
    def program(args, width=8):
        records = (Record("add", (2,), args, (), {}),)
        return Program(records, (8, 8, width), (), ("a", "b", "c"))

    digests = {digest_operations(program(args)) for args in ((0, 1), (1, 0), (0, 0))}
    assert len(digests) == 3
    assert digest_operations(program((0, 1), 9)) not in digests


def test_lists_cannot_be_mistaken_for_others():
    def program(**attrs):
        return Program((Record("rope", (1,), (0,), (), attrs),), (8, 8), (), ("a", "b"))

    digests = {
        digest_operations(program(**attrs))
        for attrs in (
            {"freqs": [1.0, 2.0]},
            {"freqs": [2.0, 1.0]},
            {"freqs": [1.0]},
            {"freqs": [1, 2]},
            {"freqs": []},
            {"style": "half"},
            {"style": "hal", "axes": "f"},
        )
    }
    assert len(digests) == 7


def test_what_is_kept_counts_by_kind_and_shape(small_model):
    plain = small_model("llama").trace()
    digests = {
        digest_memories(p)
        for p in (
            plain,
            changed(plain, "attention", window=5),
            changed(plain, "attention", window=6),
            changed(plain, "attention", layer=9),
            changed(plain, "attention", mask="full"),
            changed(plain, "attention", kv_heads=1, k_dim=32),
        )
    }
    assert len(digests) == 6


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_digests_stay_what_they_are(small_model, name):
    program = small_model(name).trace()
    assert (digest_operations(program).hex(), digest_memories(program).hex()) == KNOWN[name]
