"""The checks of `verify` fail when they should: each is shown a model that is broken in the one way it is there for."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llamay_cli_fakes import FakeContext, FakeModel, logits_of

from llamay_cli.errors import CliError
from llamay_cli.verification import CHECKS, Observation, Result, compare, verify

TOKENS = [(7 * i + 3) % 200 + 10 for i in range(100)]
NAMES = [check.name for check in CHECKS]


def nudged(logits: Any) -> Any:
    """The same logits, but for the last bit of one."""
    changed = np.array(logits)
    changed[17] = np.nextafter(changed[17], np.float32(9), dtype=np.float32)
    return changed


class FakeSubject:
    """A file whose setups and processes can be broken one by one."""

    def __init__(self, broken: str = "") -> None:
        self.broken = broken
        self.model = self._model("")

    def _model(self, setup: str) -> FakeModel:
        def fault(way: str, value: Any) -> Any:
            if self.broken and self.broken in (way, setup):
                return nudged(value) if isinstance(value, np.ndarray) else [*value[:-1], value[-1] ^ 1]
            return value

        return FakeModel(fault=fault)

    @contextlib.contextmanager
    def loaded(self, **changes: Any) -> Iterator[FakeModel]:
        yield self._model(f"{next(iter(changes))}={next(iter(changes.values()))}")

    def kernel_sets(self) -> list[str]:
        return ["avx512", "portable"]

    def in_new_process(
        self, *, isa: str | None = None, snapshot: Path | None = None, prompt: Any = (), more: Any = ()
    ) -> tuple[Observation, str]:
        from llamay_cli.verification.subject import observe

        if self.broken == "no process":
            raise CliError("the new process failed: Segmentation fault")
        model = self._model(isa or "process")
        context: Any = model.restore(snapshot) if snapshot else model.context(prompt)
        return observe(context, more), "avx2" if self.broken == "not forced" else isa or "avx512"


def run(subject: FakeSubject) -> dict[str, Result]:
    return {result.name: result for result in verify(subject, subject.model, TOKENS)}  # type: ignore[arg-type]


def test_an_exact_model_passes_every_check_with_no_difference() -> None:
    results = run(FakeSubject())

    assert list(results) == NAMES
    assert all(result.passed and result.difference == 0.0 for result in results.values()), results


@pytest.mark.parametrize(
    ("broken", "failing"),
    [
        ("extended", {"prefill == decode"}),
        ("batch", {"batch of 8 == each alone"}),
        ("fork", {"fork == parent"}),
        ("restored", {"snapshot resumes in a new process"}),
        ("process", {"snapshot resumes in a new process"}),
        ("no process", {"snapshot resumes in a new process", "every kernel set of this CPU"}),
        ("threads=1", {"threads 1, 2, 4"}),
        ("threads=4", {"threads 1, 2, 4"}),
        ("page_tokens=16", {"page sizes 16, 64, 256"}),
        ("page_tokens=256", {"page sizes 16, 64, 256"}),
        ("portable", {"every kernel set of this CPU"}),
        ("not forced", {"every kernel set of this CPU"}),
        ("tokens batch", {"batch of 8 == each alone"}),
        ("tokens fork", {"fork == parent"}),
    ],
)
def test_a_single_bit_of_a_single_logit_fails_its_check(broken: str, failing: set[str]) -> None:
    results = run(FakeSubject(broken))

    failed = {name for name, result in results.items() if not result.passed}
    # A context that goes on from any state is an extended one, so that fault shows elsewhere too.
    assert failing <= failed
    assert failed == failing or broken == "extended"


def test_a_model_that_does_not_look_at_its_tokens_fails_every_check(monkeypatch: pytest.MonkeyPatch) -> None:
    constant = logits_of([1])
    monkeypatch.setattr(FakeContext, "logits", property(lambda self: constant))

    results = run(FakeSubject())

    for result in results.values():
        assert not result.passed
        assert "blind" in result.detail


@pytest.mark.parametrize(
    "logits", [np.zeros(256, np.float32), np.full(256, np.nan, np.float32), np.zeros(0, np.float32)]
)
def test_logits_that_are_none_fail_every_check(monkeypatch: pytest.MonkeyPatch, logits: Any) -> None:
    monkeypatch.setattr(FakeContext, "logits", property(lambda self: logits))

    assert not any(result.passed for result in run(FakeSubject()).values())


def test_an_engine_that_does_not_batch_fails_the_batch_check() -> None:
    subject = FakeSubject()
    subject.model.batches = False

    result = run(subject)["batch of 8 == each alone"]

    assert not result.passed
    assert "did not batch" in result.detail


def test_each_check_runs_its_control(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = FakeSubject()
    for check in CHECKS:
        seen = []

        def watching(
            s: Any, m: Any, expected: Any, actual: Any, observe: Any = check.observe, seen: list[Any] = seen
        ) -> Any:
            seen.append((list(expected), list(actual)))
            return observe(s, m, expected, actual)

        type(check)(check.name, watching).run(subject, subject.model, TOKENS)  # type: ignore[arg-type]
        assert seen[0] == (TOKENS, TOKENS)
        assert sum(a != b for a, b in zip(*seen[1], strict=True)) == 1


def observation(*logits: float, tokens: tuple[int, ...] = ()) -> Observation:
    return Observation({"x": np.array(logits, np.float32)}, list(tokens))


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2), st.data())
def test_equal_means_every_bit(values: list[float], data: st.DataObject) -> None:
    if min(values) == max(values):
        return
    place = data.draw(st.integers(0, len(values) - 1))
    bit = data.draw(st.integers(0, 22))
    one = np.array(values, np.float32)
    other = one.copy()
    other.view(np.uint32)[place] ^= 1 << bit

    assert compare(Observation({"x": one}), Observation({"x": one.copy()})).equal
    assert not compare(Observation({"x": one}), Observation({"x": other})).equal


@pytest.mark.parametrize(
    ("a", "b", "largest"),
    [
        (observation(1, 2), observation(1, 2.5), 0.5),
        (observation(0.0, 2), observation(-0.0, 2), 0.0),
        (observation(1, 2), observation(1, 2, 3), float("inf")),
        (observation(1, float("inf")), observation(1, float("inf")), float("inf")),
        (observation(1, 2, tokens=(1, 2)), observation(1, 2, tokens=(1, 3)), 0.0),
        (Observation(), Observation(), float("inf")),
        (observation(1, 2), Observation({"y": np.array([1, 2], np.float32)}), float("inf")),
    ],
)
def test_what_differs_is_told(a: Observation, b: Observation, largest: float) -> None:
    difference = compare(a, b)

    assert not difference.equal
    assert difference.largest == largest
    assert difference.detail


def test_json_has_the_documented_fields(
    fake: Any, llamay: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = FakeSubject("portable")
    subject.loaded = lambda report=None, **changes: contextlib.nullcontext(subject.model)  # type: ignore[method-assign, assignment]
    monkeypatch.setattr("llamay_cli.verification.Subject", lambda *args: subject)

    result = llamay("verify", fake.path, "--json", "--tokens", "100")

    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert document["ok"] is False
    assert [check["name"] for check in document["checks"]] == NAMES
    assert all(list(check) == ["name", "pass", "difference", "detail"] for check in document["checks"])
    assert [check["name"] for check in document["checks"] if not check["pass"]] == [
        "every kernel set of this CPU"
    ]
