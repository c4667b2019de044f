"""The printed plan of each architecture is held: a change shows what it does to the machine's work.

To accept a change, run with LLAMAY_UPDATE_SNAPSHOTS=1 and read the difference.
"""

import os
from pathlib import Path

import pytest

from llamay_models.architectures import ARCHITECTURES
from llamay_models.plan import Explain, explain, fuse

FOLDER = Path(__file__).parent / "plans"


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_the_plan_is_the_one_that_was_agreed(small_model, name):
    model = small_model(
        name,
        **(
            {"block_count": 2, "attention.sliding_window_pattern": 2}
            if name == "gemma3"
            else {"block_count": 1}
        ),
    )
    traced = Explain()
    program = model.trace(traced)
    text = f"traced: {traced}\nfused: {explain(fuse(program))}"
    file = FOLDER / f"{name}.txt"
    if os.environ.get("LLAMAY_UPDATE_SNAPSHOTS"):
        FOLDER.mkdir(exist_ok=True)
        file.write_text(text)

    assert text == file.read_text()
