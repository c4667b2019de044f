"""Each architecture computes what transformers does, of the files in ../data/parity, which every clone has.

`../parity/make.py` makes them: tiny models of random weights, and outputs in 64 bits throughout. So the reference,
which computes in float64, too, differs by the order of its sums only.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from llamay_models import gguf, load, scoring
from llamay_models.architectures import ARCHITECTURES, Architecture, Config, find
from llamay_models.plan import ArrayTensor, Reference, Rows, Trace, Weights, check
from llamay_models.tensors import file_tensors

from .kernel_steps import computed

FILES = {path.stem: path for path in sorted((Path(__file__).parents[1] / "data" / "parity").glob("*.gguf"))}
EXACT = 1e-13  # of the largest output
KERNELS = 1e-5  # float32 of transformers itself is up to 3e-6 away, where a state goes through exponentials
UNSEEN = {
    # A number that is added to every score of a query, which softmax takes away again.
    "bert": {"blk.0.attn_k.bias", "blk.1.attn_k.bias"},
}
Values = dict[str, np.ndarray]


@dataclass(frozen=True)
class Model:
    """A model, its text, and what transformers computes: float64 (tokens, vocabulary or width)."""

    architecture: Architecture
    config: Config
    values: Values
    tokens: list[int]
    types: list[int] | None
    expected: np.ndarray

    @property
    def weights(self) -> Weights:
        return Weights({name: ArrayTensor(name, values) for name, values in self.values.items()})

    def reference(self) -> np.ndarray:
        rows = Rows(self.tokens, types=self.types)
        return self.architecture.build(Reference(rows), self.config, self.weights).array

    def kernels(self, *steps: int) -> np.ndarray:
        trace = Trace()
        self.architecture.build(trace, self.config, self.weights)
        return computed(trace.program(), self.tokens, steps, self.types)

    def distance(self, out: np.ndarray) -> float:
        """How far an output is from the expected, as a part of the largest number of the latter."""
        assert out.shape == self.expected.shape
        return float(np.abs(out - self.expected).max() / np.abs(self.expected).max())

    def changed(self, change: Callable[[str, np.ndarray], np.ndarray], *names: str) -> Model:
        """Return the model with other values of some tensors."""
        return dataclasses.replace(
            self, values={**self.values, **{n: change(n, self.values[n]) for n in names}}
        )


def opened(name: str) -> Model:
    with gguf.open(FILES[name]) as file:
        architecture, config = find(file.metadata)
        tensors = file_tensors(file)
        check(architecture.build, config, tensors)
        types = file.metadata.get("parity.types")
        return Model(
            architecture,
            config,
            {
                n: np.array(file.tensors[n].data).view(np.float32).reshape(file.tensors[n].shape)
                for n in tensors
            },
            [int(t) for t in file.metadata["parity.tokens"]],
            None if types is None else [int(t) for t in types],
            np.load(FILES[name].with_suffix(".npy")),
        )


@pytest.fixture(scope="module", params=FILES)
def model(request: pytest.FixtureRequest) -> Model:
    return opened(request.param)


def test_every_architecture_has_a_file() -> None:
    assert {opened(name).architecture.name for name in FILES} == set(ARCHITECTURES)


def test_the_reference_computes_what_transformers_does(model: Model) -> None:
    assert model.distance(model.reference()) < EXACT


@pytest.mark.parametrize("steps", [(24,), (5, 1, 11, 7), (1,) * 24], ids=["whole", "parts", "ones"])
def test_the_kernels_compute_what_transformers_does(model: Model, steps: tuple[int, ...]) -> None:
    assert model.distance(model.kernels(*steps)) < KERNELS


@pytest.mark.parametrize("name", [n for n in FILES if n != "bert"])
def test_a_loaded_file_computes_what_transformers_does(name: str) -> None:
    with load(FILES[name], kv="f32", threads=1) as loaded:
        expected = opened(name)
        logits = np.concatenate(list(scoring.logits(loaded, expected.tokens)))
    assert expected.distance(logits) < KERNELS


def test_a_change_of_any_tensor_is_seen(model: Model) -> None:
    """So every tensor of every file matters, and the comparison with the reference would fail with a wrong one."""

    def nudged(name: str, values: np.ndarray) -> np.ndarray:
        noise = np.random.default_rng([*name.encode()]).normal(size=values.shape) * 1e-3
        return values - np.abs(noise.astype(np.float32)) if name.endswith("ssm_a") else values + noise

    unseen = {n for n in model.values if model.distance(model.changed(nudged, n).reference()) < 1e5 * EXACT}
    assert unseen == UNSEEN.get(model.architecture.name, set())


def test_the_kernels_fail_the_comparison_with_one_wrong_weight_of_a_norm(model: Model) -> None:
    def one_wrong(_: str, values: np.ndarray) -> np.ndarray:
        values = values.copy()
        values.flat[0] *= 1.01
        return values

    norm = next(n for n in model.values if re.fullmatch(r"blk\.0\.\w+_norm\.weight", n))
    assert model.distance(model.changed(one_wrong, norm).kernels(24)) > 10 * KERNELS
