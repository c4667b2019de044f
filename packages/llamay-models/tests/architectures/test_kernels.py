"""The kernels compute what the reference computes, of every architecture, in steps of any size."""

import numpy as np
import pytest

import llamay_kernels as kernels
from llamay_models import gguf
from llamay_models.architectures import ARCHITECTURES, find
from llamay_models.embedding import take_rank_head
from llamay_models.plan import TABLE, Operation, Trace, Weights, evaluate
from llamay_models.tensors import file_tensors

from ..architecture_names import LOGITS_FILES, TEXT
from .kernel_steps import computed

MANY = 40
FILES = ("bert", *LOGITS_FILES)


@pytest.mark.parametrize("steps", [(8,), (3, 1, 4), (1,) * 8])
@pytest.mark.parametrize("name", FILES)
def test_files_of_random_weights_give_the_logits_of_transformers(shared_data, name, steps):
    path = shared_data / "models" / f"{name}.gguf"
    with gguf.open(path) as file:
        architecture, config = find(file.metadata)
        tensors = file_tensors(file)
        take_rank_head(tensors, config.width)
        trace = Trace()
        architecture.build(trace, config, Weights(tensors))
        out = computed(trace.program(), TEXT, steps)
    expected = np.load(path.with_suffix(".hidden.npy" if name == "bert" else ".logits.npy"))
    np.testing.assert_allclose(out, expected, atol=2e-5 if name == "falcon-mamba" else 5e-6)


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_small_models_give_what_the_reference_gives(small_model, name):
    program, tokens = small_model(name).trace(), [3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 3, 2, 3, 8]
    expected = evaluate(program, tokens)
    out = computed(program, tokens, (4, 1, 1, 7, 2))
    np.testing.assert_allclose(out, expected, atol=1e-4 * np.abs(expected).max())
    assert np.array_equal(out, computed(program, tokens, (15,)))


def refusal(record):
    """Return what the kernels say of a record."""
    with pytest.raises(kernels.PlanError) as error:
        kernels.Plan([record], [1] * MANY, [], max_rows=1)
    return str(error.value)


def counted(names):
    """Return how a count is said of names of which some may be left out."""
    least, most = sum(not n.endswith(("?", "...")) for n in names), len(names)
    if "..." in names:
        return f"{least} or more"
    return str(most) if least == most else f"{least} to {most}"


def least(operation: Operation):
    """Return the shortest record of an operation, with an attribute that none has."""
    numbers = [
        tuple(range(int(counted(n).split()[0]))) for n in (operation.outs, operation.args, operation.weights)
    ]
    return operation.name, *numbers, {"of_no_operation": 1}


def test_the_kernels_know_the_operations_of_the_table():
    said = refusal(("of_no_name", (0,), (), (), {}))
    assert sorted(said.partition("there are ")[2].split(", ")) == sorted(TABLE)


@pytest.mark.parametrize("name", sorted(TABLE))
def test_the_kernels_know_each_operation_as_the_table_does(name):
    """Its counts and its attributes; the names of attributes that may be left out are compared, too."""
    operation = TABLE[name]
    said = refusal(least(operation)).partition("it has ")[2]
    assert sorted(said.split(", ")) == sorted(operation.attrs) or (said == "none" and not operation.attrs)
    _, *numbers, _ = least(operation)
    for index, (what, names) in enumerate(
        (("outs", operation.outs), ("args", operation.args), ("weights", operation.weights))
    ):
        many = [MANY * (1,) if i == index else n for i, n in enumerate(numbers)]
        if "..." not in names:
            assert f"takes {counted(names)} {what}, not {MANY}" in refusal((name, *many, {}))
        elif not operation.attrs:
            assert "takes" not in refusal((name, *many, {}))
