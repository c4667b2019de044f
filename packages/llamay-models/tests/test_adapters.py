"""LoRA adapters: an adapted model computes what merged weights would, exactly as every model does."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamay_models import gguf, load, scoring
from llamay_models.adapters import Adapter, adapted_program
from llamay_models.engine import Sampling
from llamay_models.errors import (
    ArchitectureError,
    IdentityMismatchError,
    MetadataError,
    ModelError,
    TensorError,
)
from llamay_models.plan import ArrayTensor, Program, evaluate, fuse
from llamay_models.plan.low_rank import Update, adapt, outline

from .architecture_names import DENSE

TOKENS = [1, 20, 33, 47, 8, 5, 7, 11, 2, 60, 31]
Pairs = Mapping[str, tuple[np.ndarray, np.ndarray]]


def write_adapter(
    path: Path,
    pairs: Pairs,
    *,
    architecture: str = "llama",
    alpha: float = 8.0,
    kind: str = "F32",
    **metadata: Any,
) -> Path:
    """Write a file as llama.cpp's converter does; a key with the value None is left out."""
    dtype = {"F32": np.float32, "F16": np.float16}[kind]
    tensors = [
        gguf.TensorData(f"{name}.lora_{half}", kind, values.shape, values.astype(dtype).tobytes())
        for name, (a, b) in pairs.items()
        for half, values in (("a", a), ("b", b))
    ]
    keys = {
        "general.architecture": architecture,
        "general.type": "adapter",
        "adapter.type": "lora",
        "adapter.lora.alpha": np.float32(alpha),
    }
    keys |= {key.replace("__", "."): value for key, value in metadata.items()}
    gguf.write(path, {key: value for key, value in keys.items() if value is not None}, tensors)
    return path


def random_pairs(shapes: Mapping[str, tuple[int, int]], rank: int = 4, seed: int = 0) -> Pairs:
    """An update of each matrix of (rows, cols), large enough to matter; of a table with its sides exchanged."""
    rng = np.random.default_rng(seed)
    pairs = {}
    for name, (rows, cols) in shapes.items():
        rows, cols = (cols, rows) if name == "token_embd.weight" else (rows, cols)
        a = rng.normal(size=(rank, cols)) / np.sqrt(cols)
        b = rng.normal(size=(rows, rank)) / np.sqrt(rank)
        # Of a table the first factor has a row for each token.
        pairs[name] = (a.T if name == "token_embd.weight" else a, b)
    return {name: (a.astype(np.float32), b.astype(np.float32)) for name, (a, b) in pairs.items()}


def matrices(small: Any) -> dict[str, tuple[int, int]]:
    """Every matrix of a small model but the tied table and what positions are looked up in."""
    names = {name: (t.rows, t.cols) for name, t in small.tensors.items() if t.rows > 1}
    names.pop("position_embd.weight", None)
    if "output.weight" not in names:
        names.pop("token_embd.weight")
    return names


class Exact(ArrayTensor):
    """A tensor whose values stay float64, so that a sum of float32 products is compared without rounding."""

    def __post_init__(self) -> None:
        pass


def merged(small: Any, updates: Mapping[str, Update]) -> Any:
    """The same model with the updates in its weights, in float64."""
    tensors = dict(small.tensors)
    for name, update in updates.items():
        tensors[name] = Exact(name, tensors[name].values + product(name, update))
    return replace(small, tensors=tensors)


def product(name: str, update: Update) -> np.ndarray:
    """What an update adds, in float64."""
    a, b = update.a.dequantize().astype(np.float64), update.b.dequantize().astype(np.float64)
    return update.scale * (a @ b.T if name == "token_embd.weight" else b @ a)


@pytest.mark.parametrize("untied", [False, True])
@pytest.mark.parametrize("name", DENSE)
def test_an_adapted_program_computes_what_merged_weights_compute(
    small_model: Any, tmp_path: Path, name: str, untied: bool
) -> None:
    small = small_model(name, untied=untied)
    path = write_adapter(tmp_path / "a.gguf", random_pairs(matrices(small)), architecture=name, alpha=2.0)
    adapter = Adapter.open(path, 0.75)
    assert {update.scale for update in adapter.updates().values()} == {0.75 * 2.0 / 4}
    expected = merged(small, adapter.updates()).reference(TOKENS)
    assert np.abs(expected - small.reference(TOKENS)).max() > 0.1  # it does matter

    program = adapted_program(small.trace(), [adapter], name)

    np.testing.assert_allclose(evaluate(program, TOKENS), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(evaluate(fuse(program), TOKENS), expected, rtol=1e-9, atol=1e-9)
    drawn = adapted_program(outline(small.trace()), [adapter], name)
    for got, wanted in zip(drawn.records, program.records, strict=True):
        assert (got.op, got.outs, got.args, got.weights) == (
            wanted.op,
            wanted.outs,
            wanted.args,
            wanted.weights,
        )


def test_several_adapters_add_up_and_an_alpha_of_zero_ignores_the_rank(
    small_model: Any, tmp_path: Path
) -> None:
    small = small_model("llama")
    names = matrices(small)
    some = dict(list(names.items())[::2])
    one = Adapter.open(write_adapter(tmp_path / "1.gguf", random_pairs(names, 4, 1)), 0.5)
    two = Adapter.open(
        write_adapter(tmp_path / "2.gguf", random_pairs(some, 3, 2), alpha=0.0, kind="F16"), -0.25
    )
    assert {update.scale for update in two.updates().values()} == {-0.25}

    program = adapted_program(small.trace(), [one, two], "llama")

    expected = merged(merged(small, one.updates()), two.updates()).reference(TOKENS)
    np.testing.assert_allclose(evaluate(program, TOKENS), expected, rtol=1e-9, atol=1e-9)

    # In their order: the last one's product is what the last sum adds.
    makers = {record.outs[0]: record for record in program.records}
    plain = next(r for r in small.trace().records if r.op == "linear")
    name = small.trace().tensors[plain.weights[0]].name
    assert name in some
    total = makers[plain.outs[0]]
    for adapter in (two, one):
        assert total.op == "add"
        assert program.tensors[makers[total.args[1]].weights[0]].name == f"{name}.lora_b"
        assert program.tensors[makers[total.args[1]].weights[0]] == adapter.pairs[name][1]
        total = makers[total.args[0]]
    assert total.op == "linear"


def stories(shared_data: Path) -> Path:
    path: Path = shared_data / "models" / "stories260K.gguf"
    return path


@pytest.fixture
def adapter(shared_data: Path, tmp_path: Path) -> Callable[..., Path]:
    """Write an adapter of every matrix of the stories model, the output's too."""
    with gguf.open(stories(shared_data)) as file:
        shapes = {name: info.shape for name, info in file.tensors.items() if len(info.shape) == 2}
    if "output.weight" not in shapes:
        shapes.pop("token_embd.weight")

    def write(name: str = "adapter", seed: int = 0, only: str = "", **more: Any) -> Path:
        chosen = {each: shape for each, shape in shapes.items() if only in each}
        return write_adapter(tmp_path / f"{name}.gguf", random_pairs(chosen, seed=seed), **more)

    return write


STORY = [1, *range(300, 340)]


def logits_of(model: Any, tokens: list[int] = STORY) -> np.ndarray:
    return np.concatenate(list(scoring.logits(model, tokens)))


@pytest.mark.parametrize("kind", ["F32", "F16"])
def test_a_file_that_was_merged_says_the_same(
    shared_data: Path, tmp_path: Path, adapter: Callable[..., Path], kind: str
) -> None:
    path = adapter(kind=kind)
    with gguf.open(stories(shared_data)) as file:
        assert {info.format for info in file.tensors.values()} == {"F32"}
        tensors = []
        updates = Adapter.open(path).updates()
        for name, info in file.tensors.items():
            values = info.data.view(np.float32).reshape(info.shape).astype(np.float64)
            if name in updates:
                values = values + product(name, updates[name])
            tensors.append(gguf.TensorData(name, "F32", info.shape, values.astype(np.float32).tobytes()))
        gguf.write(tmp_path / "merged.gguf", dict(file.metadata), tensors)

    with (
        load(stories(shared_data), kv="f32", threads=1, adapters=[path]) as adapted,
        load(tmp_path / "merged.gguf", kv="f32", threads=1) as whole,
        load(stories(shared_data), kv="f32", threads=1) as plain,
    ):
        expected = logits_of(whole)
        np.testing.assert_allclose(logits_of(adapted), expected, atol=2e-3)
        assert np.abs(expected - logits_of(plain)).max() > 1
        np.testing.assert_allclose(
            adapted.embed([STORY], normalize=False), whole.embed([STORY], normalize=False), atol=2e-3
        )


def test_prefill_is_decode_and_a_fork_its_parent_to_the_last_bit(
    shared_data: Path, adapter: Callable[..., Path]
) -> None:
    with load(stories(shared_data), threads=2, adapters=[(adapter(), 0.5)]) as model:
        at_once = logits_of(model)
        context = model.context(STORY[:1])
        for i in range(1, len(STORY)):
            assert np.array_equal(context.logits, at_once[i - 1])
            branch = context.fork()
            branch.extend([STORY[i]])
            context.extend([STORY[i]])
            assert np.array_equal(branch.logits, context.logits)
            branch.close()


def test_a_model_is_adapted_over_the_same_weights_and_each_keeps_to_itself(
    shared_data: Path, tmp_path: Path, adapter: Callable[..., Path]
) -> None:
    path = adapter()
    base = load(stories(shared_data), threads=1)
    plain = logits_of(base)
    adapted = base.adapted([(path, 0.5)])
    with load(stories(shared_data), threads=1, adapters=[(path, 0.5)]) as loaded:
        assert np.array_equal(logits_of(adapted), logits_of(loaded))
        assert adapted.identity == loaded.identity
    assert all(a is b for a, b in zip(base._parts.weights, adapted._parts.weights, strict=False))
    assert np.array_equal(logits_of(base), plain)
    assert not np.array_equal(logits_of(adapted), plain)
    assert [a.path for a in adapted.adapters] == [path]
    assert base.adapters == ()

    # Another one of an adapted model has its own adapters, not both.
    again = adapted.adapted([])
    assert np.array_equal(logits_of(again), plain)
    assert again.identity == base.identity

    adapted.context(STORY).save(tmp_path / "c.llamay")
    with pytest.raises(IdentityMismatchError, match="adapters"):
        base.restore(tmp_path / "c.llamay")
    base.close()
    again.close()
    assert len(adapted.restore(tmp_path / "c.llamay")) == len(STORY)
    assert adapted.context(STORY).generate(Sampling(temperature=0), max_tokens=8).text
    adapted.close()


def test_files_scales_and_their_order_are_part_of_the_identity(
    shared_data: Path, adapter: Callable[..., Path]
) -> None:
    one, two = adapter("one", 1), adapter("two", 2)
    with load(stories(shared_data), threads=1) as base:
        ways = [[], [one], [two], [(one, 0.5)], [one, two], [two, one], [one, one]]
        found = [base.adapted(way) for way in ways]
        assert len({model.identity.digest for model in found}) == len(ways)
        nothing = base.adapted([(one, 0.0)])
        assert nothing.identity == base.identity
        assert np.array_equal(logits_of(nothing), logits_of(base))
        for model in [*found, nothing]:
            model.close()


def test_packed_weights_are_kept_without_the_adapter(
    shared_data: Path, tmp_path: Path, adapter: Callable[..., Path]
) -> None:
    folder = tmp_path / "packed"
    with load(stories(shared_data), threads=1, packed_cache=folder, adapters=[adapter()]) as model:
        expected = logits_of(model)
    kept = list(folder.iterdir())
    with load(stories(shared_data), threads=1, packed_cache=folder, adapters=[adapter("other", 5)]) as model:
        assert not np.array_equal(logits_of(model), expected)
    with load(stories(shared_data), threads=1, packed_cache=folder, adapters=[adapter()]) as model:
        assert np.array_equal(logits_of(model), expected)
    assert list(folder.iterdir()) == kept


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"general__type": None}, "is not an adapter: its general.type is None"),
        ({"general__type": "model"}, "is not an adapter"),
        ({"adapter__type": "ia3"}, "'ia3' are not supported"),
        ({"adapter__alora__invocation_tokens": [1, 2]}, "aLoRA"),
        ({"architecture": "qwen2"}, "adapts the architecture qwen2, and this model's is llama"),
        ({"alpha": float("nan")}, "adapter.lora.alpha must be"),
        ({"alpha": -1.0}, "adapter.lora.alpha must be"),
        ({"adapter__lora__alpha": None}, "adapter.lora.alpha must be"),
        ({"adapter__lora__alpha": "8"}, "adapter.lora.alpha must be"),
    ],
)
def test_a_file_that_is_no_adapter_of_this_model_is_refused(
    shared_data: Path, adapter: Callable[..., Path], keys: dict[str, Any], said: str
) -> None:
    path = adapter(**keys)
    with pytest.raises(MetadataError, match=re.escape(said)) as caught:
        load(stories(shared_data), threads=1, adapters=[path])
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda p: {"blk.9.attn_q.weight": p["blk.0.attn_q.weight"]}, "is no matrix of this model"),
        (lambda p: {"blk.0.attn_q.weight": p["blk.0.attn_q.weight"][::-1]}, "do not fit"),
        (lambda p: {"blk.0.attn_q.weight": (p["blk.0.attn_q.weight"][0], np.zeros((9, 4)))}, "has 9 rows"),
        (lambda p: {"blk.0.attn_q.weight": (np.zeros((3, 64)), np.zeros((64, 4)))}, "do not fit"),
    ],
)
def test_updates_that_do_not_fit_are_refused_and_the_file_is_named(
    shared_data: Path, tmp_path: Path, change: Callable[[Pairs], Pairs], said: str
) -> None:
    pairs = random_pairs({"blk.0.attn_q.weight": (64, 64)})
    path = write_adapter(tmp_path / "bad.gguf", change(pairs))
    with pytest.raises(TensorError, match=re.escape(said)) as caught:
        load(stories(shared_data), threads=1, adapters=[path])
    assert str(path) in str(caught.value)


def test_tensors_that_are_no_pair_and_files_without_any_are_refused(
    shared_data: Path, tmp_path: Path, adapter: Callable[..., Path]
) -> None:
    def file(*names: str) -> Path:
        keys = {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora"}
        tensors = [gguf.TensorData(name, "F32", (4, 64), bytes(4 * 4 * 64)) for name in names]
        path = tmp_path / "odd.gguf"
        gguf.write(path, {**keys, "adapter.lora.alpha": np.float32(1)}, tensors)
        return path

    for names, said in (
        (("blk.0.attn_q.weight.lora_a",), "blk.0.attn_q.weight.lora_b is missing"),
        (("blk.0.attn_norm.weight",), "blk.0.attn_norm.weight is not a low-rank update"),
        (("blk.0.attn_q.weight.lora_a.lora_a",), "lora_a.lora_a is not a low-rank update"),
        ((), "holds no update"),
    ):
        with pytest.raises(TensorError, match=re.escape(said)):
            Adapter.open(file(*names))
    for a, b in (((4, 64), (64, 0)), ((0, 64), (64, 4)), ((4, 64), (0, 4))):
        pairs = {"blk.0.attn_q.weight": (np.zeros(a), np.zeros(b))}
        with pytest.raises(TensorError, match="is empty"):
            Adapter.open(write_adapter(tmp_path / "empty.gguf", pairs))
    with pytest.raises(ValueError, match="finite"):
        Adapter.open(adapter(), float("inf"))
    with pytest.raises(ModelError):
        Adapter.open(stories(shared_data))
    with pytest.raises(ArchitectureError, match="is an adapter, not a model"):
        load(adapter(), threads=1)
    with pytest.raises(FileNotFoundError):
        Adapter.open(tmp_path / "none.gguf")


def test_a_table_that_is_the_output_too_cannot_be_adapted(small_model: Any, tmp_path: Path) -> None:
    small = small_model("llama")
    path = write_adapter(tmp_path / "t.gguf", random_pairs({"token_embd.weight": (61, 32)}))
    with pytest.raises(TensorError, match="output matrix too"):
        adapted_program(small.trace(), [Adapter.open(path)], "llama")


def test_a_program_without_updates_is_the_program_itself(small_model: Any) -> None:
    program = small_model("llama").trace()
    assert adapted_program(program, [], "llama") is program
    again: Program = adapt(program, {})
    assert again == program
