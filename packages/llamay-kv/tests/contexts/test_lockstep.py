"""Any history leaves every context equal to one that owns a full copy, and every count exact."""

import importlib.util
import os
import random
import tempfile

import kv_stored_driver
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from kv_driver import CONFIGS, Driver, run

# More of both for the long run that docs/state.md records.
EXAMPLES, STEPS = (int(os.environ.get(f"LLAMAY_KV_{n}", d)) for n, d in (("EXAMPLES", 2), ("STEPS", 60)))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.mix}-{c.precision}-{c.memory}-{c.page_tokens}")
def test_histories_of_every_configuration_stay_in_lockstep(config, tmp_path):
    for seed in range(EXAMPLES):
        run(config, seed, STEPS, str(tmp_path))


@pytest.mark.parametrize(
    ("config", "store"),
    kv_stored_driver.CONFIGS,
    ids=lambda c: c if isinstance(c, str) else f"{c.mix}-{c.precision}-{c.memory}-{c.page_tokens}",
)
def test_histories_with_snapshots_and_the_disk_cache_in_the_middle_stay_in_lockstep(config, store):
    if store == "objects" and importlib.util.find_spec("obstore") is None:
        pytest.skip("needs the extra object-store")
    for seed in range(EXAMPLES):
        kv_stored_driver.run(config, store, seed, STEPS)


class Lockstep(RuleBasedStateMachine):
    """The same driver with operations that hypothesis chooses, so that a failure shrinks to a short history."""

    @initialize(config=st.sampled_from(CONFIGS), pages=st.integers(1, 24))
    def first(self, config, pages):
        self.driver = Driver(config, tempfile.gettempdir(), pages)

    @rule(operation=st.sampled_from(sorted(set(Driver.OPERATIONS))), seed=st.integers(0, 1 << 16))
    def step(self, operation, seed):
        self.driver.rng = random.Random(seed)
        self.driver.OPERATIONS = [operation]
        self.driver.step()

    def teardown(self):
        if hasattr(self, "driver"):
            self.driver.finish()


TestLockstep = Lockstep.TestCase
TestLockstep.settings = settings(max_examples=25 * EXAMPLES, stateful_step_count=40, deadline=None)
