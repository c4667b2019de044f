"""The table of operations is whole: each is told once, in its family, and everything else asks the table."""

import inspect
import os
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from llamay_models.architectures import ARCHITECTURES
from llamay_models.errors import PlanError
from llamay_models.kv_cache.layout import cache_layout
from llamay_models.plan import (
    MEANINGS,
    REWRITES,
    TABLE,
    Program,
    Record,
    RowByRow,
    Trace,
    memories,
    operation,
    operations,
    validate,
)
from llamay_models.plan.operations import FAMILIES, FUSIONS, _in_order
from llamay_models.plan.records import Outline
from llamay_models.plan.schema import Fusion

STUB = Path(inspect.getfile(operations)).with_suffix(".pyi")


def test_every_operation_is_told_once():
    told = Counter(o.name for module in operations._MODULES for o in module.OPERATIONS)
    assert set(told.values()) == {1}
    assert set(MEANINGS) == set(TABLE) == set(told)


def test_every_operation_has_a_method_or_says_what_it_is_fused_of():
    for name, kind in TABLE.items():
        assert bool(kind.means) != hasattr(Trace, name), name
        assert not kind.means or not kind.row_by_row, f"{name}: select moves before anything is fused"


def test_methods_of_two_families_have_different_names():
    methods = Counter(n for f in FAMILIES for n in vars(f) if not n.startswith("_"))
    assert set(methods.values()) == {1}


def test_what_keeps_something_says_how_it_goes_on():
    for name, kind in TABLE.items():
        keeps = kind.memory is not operation("add").memory
        assert keeps == (kind.step is not None), name
        assert keeps or kind.keep is None, name


def test_type_checkers_see_the_families_that_are_found():
    """LLAMAY_UPDATE_SNAPSHOTS=1 writes the stub anew."""
    imports = "".join(f"from {f.__module__} import {f.__name__}\n" for f in FAMILIES)
    bases = ", ".join(f.__name__ for f in FAMILIES)
    text = (
        "# Written by tests/plan/test_table.py from the families beside this file: "
        "LLAMAY_UPDATE_SNAPSHOTS=1 writes it anew.\n"
        "from collections.abc import Mapping\n\n"
        "from llamay_models.plan.recorder import Recorder\n"
        "from llamay_models.plan.schema import Fusion, Operation\n"
        f"{imports}\n"
        "TABLE: Mapping[str, Operation]\n"
        "FAMILIES: tuple[type[Recorder], ...]\n"
        "FUSIONS: tuple[Fusion, ...]\n\n"
        f"class Vocabulary({bases}): ...\n"
    )
    if os.environ.get("LLAMAY_UPDATE_SNAPSHOTS"):
        STUB.write_text(text)

    assert STUB.read_text() == text


# -- fusions


def test_fusions_come_in_an_order_that_each_can_live_with():
    done = set()
    for fusion in FUSIONS:
        assert set(fusion.after) <= done
        done.add(fusion.name)
    assert [r.__name__ for r in REWRITES] == ["select_early", *(f.name for f in FUSIONS)]


def test_fusions_that_wait_for_each_other_are_an_error():
    def one(program):
        return program

    def two(program):
        return program

    with pytest.raises(ValueError, match="these fusions wait for each other: one, two"):
        _in_order([Fusion(one, after=("two",)), Fusion(two, after=("one",))])
    assert [f.name for f in _in_order([Fusion(one, after=("two",)), Fusion(two)])] == ["two", "one"]


# -- records


def tensor(rows, cols, name="w"):
    return Outline(name, "F32", rows, cols, 4 * rows * cols)


TENSORS = (tensor(20, 8), tensor(8, 8), tensor(1, 8))


def program(*records, widths=(8, 8, 8, 8), tensors=TENSORS):
    first = Record("embed", (0,), (), (0,), {})
    return Program((first, *records), widths, tensors, tuple(f"v{i}" for i in range(len(widths))))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (Record("lienar", (1,), (0,), (1,), {}), "record 1: there is no operation lienar; there are: add, "),
        (Record("add", (1,), (0,), (), {}), "record 1: add has 1 arguments, but it takes: a, b"),
        (Record("linear", (1,), (0,), (), {}), "record 1: linear has 0 weights, but it takes: w, bias?"),
        (Record("linear", (1,), (0,), (1, 2, 2), {}), "linear has 3 weights, but it takes: w, bias?"),
        (Record("add", (1, 2), (0, 0), (), {}), "record 1: add has 2 outputs, but it takes: y"),
        (Record("scale", (1,), (0,), (), {}), "record 1: scale lacks the attribute by"),
        (Record("scale", (1,), (0,), (), {"by": 2.0, "to": 1}), "scale has no attribute to; it has: by"),
        (Record("add", (1,), (0, 0), (), {"by": 2.0}), "add has no attribute by; it has: none"),
        (Record("scale", (1,), (0,), (), {"by": "2"}), "scale: by must be a finite number, not '2'"),
        (Record("scale", (1,), (0,), (), {"by": float("nan")}), "scale: by must be a finite number, not nan"),
        (Record("scale", (1,), (0,), (), {"by": True}), "scale: by must be a finite number, not True"),
        (Record("softcap", (1,), (0,), (), {"cap": 0.0}), "cap must be a finite number above 0, not 0.0"),
        (Record("unary", (1,), (0,), (), {"kind": "swish"}), "unary: kind must be one of silu, gelu_tanh, "),
        (
            Record("columns", (1,), (0,), (), {"start": -1, "width": 1, "heads": 1}),
            "columns: start must be a whole number from 0 on, not -1",
        ),
        (
            Record("columns", (1,), (0,), (), {"start": 0, "width": 1.0, "heads": 1}),
            "columns: width must be a whole number from 1 on, not 1.0",
        ),
        (
            Record("linear_group", (1,), (0,), (1,), {"bias": (0,)}),
            "bias must be a sequence of true and false",
        ),
        (Record("linear", (1,), (0,), (2,), {}), "record 1: linear: w is a vector of 8 but 8 x 8 is needed"),
        (Record("add", (1,), (0, 3), (), {}), "record 1: add reads value 3, which no record before it makes"),
        (Record("add", (0,), (0, 0), (), {}), "record 1: add makes value 0 a second time"),
        (Record("add", (4,), (0, 0), (), {}), "record 1: add names value 4, but there are 4"),
        (Record("linear", (1,), (0,), (3,), {}), "record 1: linear names weight 3, but there are 3"),
    ],
)
def test_a_wrong_record_is_refused_by_the_table(record, message):
    with pytest.raises(PlanError, match=re.escape(message)):
        validate(program(record))


def test_a_wrong_width_is_refused_by_the_table():
    with pytest.raises(PlanError, match="record 1: scale: v1 has 9 values but its input has 8"):
        validate(program(Record("scale", (1,), (0,), (), {"by": 1.0}), widths=(8, 9)))
    wide, total = Record("embed", (1,), (), (1,), {}), Record("add", (2,), (0, 1), (), {})
    two = program(wide, total, widths=(8, 9, 8), tensors=(tensor(20, 8), tensor(8, 9)))
    with pytest.raises(PlanError, match="record 2: add: v0 has 8 values but v1 has 9"):
        validate(two)


def attended(layer, value, **attrs):
    """Attention over value 0; `value` is its output."""
    attrs = {
        "heads": 2,
        "kv_heads": 2,
        "k_dim": 4,
        "v_dim": 4,
        "scale": 1.0,
        "window": 0,
        "softcap": 0.0,
        **attrs,
    }
    return Record("attention", (value,), (0, 0, 0), (), {"layer": layer, **attrs})


def test_a_layer_that_two_operations_keep_is_refused_by_the_table():
    validate(program(attended(0, 1), attended(1, 2)))
    validate(program(attended(0, 1), attended(0, 2, mask="full")))
    message = re.escape("record 2, attention (v2): layer 0 is kept by record 1, attention (v1) already")
    for twice in (
        program(attended(0, 1), attended(0, 2)),
        program(attended(0, 1), attended(0, 2, window=3)),
    ):
        for use in (validate, memories, RowByRow, lambda p: cache_layout(p, "f16")):
            with pytest.raises(PlanError, match=message):
                use(twice)


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_what_is_traced_and_what_is_fused_of_it_is_valid(small_model, name):
    program = small_model(name).trace()
    validate(program)
    for rewrite in REWRITES:
        program = rewrite(program)
        validate(program)


def test_an_attribute_that_says_what_its_absence_says_is_not_recorded():
    rope = operation("rope")
    attrs = {"head_dim": 4, "offset": 0, "axes": None, "freqs": np.ones(2)}
    assert rope.recorded(attrs).keys() == {"head_dim", "freqs"}
    assert rope.complete({"head_dim": 4}) == {"head_dim": 4, "offset": 0, "axes": None}
