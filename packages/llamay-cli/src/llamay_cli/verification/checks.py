"""The checks. Each gets the tokens of the reference and the tokens of the tested way.

They are the same, except in the control, where one token differs and the check has to see it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .comparison import Difference, Observation, compare
from .subject import Setup, Subject, observe

if TYPE_CHECKING:
    from llamay_models import Model

Tokens = Sequence[int]
Pair = tuple[str, Observation, Observation]
Way = Callable[[Subject, "Model", Tokens, Tokens], Iterator[Pair]]
THREADS = (1, 2, 4)
PAGES = (16, 64, 256)
BATCH = 8
SINGLE = 24
"""Tokens at the end of the text that are decoded one by one."""


@dataclass(frozen=True)
class Check:
    """A claim, and the function that observes both sides of it."""

    name: str
    observe: Way

    def run(self, subject: Subject, model: Model, tokens: Tokens) -> Result:
        """Compare, then run the control; an exception is a failure that names itself."""
        try:
            found = self._difference(subject, model, tokens, tokens)
            if not found.equal:
                return Result(self.name, False, found.largest, found.detail)
            short = list(tokens[: max(SINGLE + 8, 40)])
            changed = [*short]
            changed[len(short) // 2] = _other(changed[len(short) // 2], model.vocab_size)
            control = self._difference(subject, model, short, changed)
        except Exception as error:
            return Result(self.name, False, None, f"{type(error).__name__}: {error}")
        if control.equal or control.largest == 0.0:
            return Result(self.name, False, 0.0, "the check is blind: it did not see a changed token")
        return Result(self.name, True, found.largest, found.detail)

    def _difference(self, subject: Subject, model: Model, expected: Tokens, actual: Tokens) -> Difference:
        equal, largest, places, detail, ways = True, 0.0, 0, "", []
        for way, want, got in self.observe(subject, model, expected, actual):
            difference = compare(want, got)
            largest, places = max(largest, difference.largest), places + difference.places
            ways.append(way)
            if equal and not difference.equal:
                equal, detail = False, f"{way}: {difference.detail}"
        if not ways:
            return Difference(False, float("inf"), 0, "nothing was compared")
        return Difference(equal, largest, places, detail or f"{', '.join(ways)}; {places} logit vectors")


@dataclass(frozen=True)
class Result:
    """The outcome of a check. `difference` is the largest of a logit; None if nothing was compared."""

    name: str
    passed: bool
    difference: float | None
    detail: str

    def to_json(self) -> dict[str, Any]:
        """Return name, pass, difference, detail; a difference that is not finite is null."""
        fields = asdict(self)
        fields["pass"] = fields.pop("passed")
        if self.difference is not None and not self.difference < float("inf"):
            fields["difference"] = None
        return {key: fields[key] for key in ("name", "pass", "difference", "detail")}


def verify(
    subject: Subject, model: Model, tokens: Tokens, report: Callable[[str, int, int], None] | None = None
) -> Iterator[Result]:
    """Run every check on `tokens`, yielding each result as soon as it is known."""
    for i, check in enumerate(CHECKS):
        if report:
            report(check.name, i, len(CHECKS))
        yield check.run(subject, model, tokens)


def prefill_equals_decode(subject: Subject, model: Model, expected: Tokens, actual: Tokens) -> Iterator[Pair]:
    """Prefill at once, in uneven pieces, and token by token; then generate, and prefill the generated tokens."""
    n = len(expected)
    lengths = sorted({n - SINGLE, n - SINGLE + 1, n - SINGLE // 2, n - 1, n})
    whole, single, pieces = Observation(), Observation(), Observation()
    for length in lengths:
        with model.context(expected[:length]) as context:
            whole.record(f"after {length}", context.logits)
    with model.context(actual[: n - SINGLE]) as context:
        for i in range(n - SINGLE, n + 1):
            if i in lengths:
                single.record(f"after {i}", context.logits)
            if i < n:
                context.extend([actual[i]])
    yield "token by token", whole, single
    with model.context(actual[:1]) as context:
        for begin, end in _uneven(1, lengths):
            context.extend(actual[begin:end])
            if end in lengths:
                pieces.record(f"after {end}", context.logits)
    yield "in uneven pieces", whole, pieces
    with model.context(expected) as written:
        seen = observe(written)
        read = Observation(tokens=seen.tokens)
        with model.context(actual) as before:
            read.record(f"after {n}", before.logits)
        with model.context([*actual, *seen.tokens]) as after:
            read.record("after generating", after.logits)
    yield "generated, then prefilled", seen, read


def batch_equals_alone(subject: Subject, model: Model, expected: Tokens, actual: Tokens) -> Iterator[Pair]:
    """Eight contexts of different lengths that decode together, against each by itself."""
    from llamay_models import Sampling

    greedy, count = Sampling(temperature=0.0, seed=0), 16
    lengths = [max(1, len(expected) - 3 * i * i) for i in range(BATCH)]
    alone = []
    for length in lengths:
        with model.context(expected[:length]) as context:
            alone.append(observe(context, generated=count))
    contexts = [model.context(actual[:length]) for length in lengths]
    try:
        seen = []
        for context in contexts:
            first = Observation()
            first.record(f"after {len(context)}", context.logits)
            seen.append(first)
        before = (model.engine.stats.steps, model.engine.stats.rows)
        running = model.engine.call(
            # Submitted between two steps, so that all eight begin with the same one.
            lambda: [context.generate(greedy, max_tokens=count, ignore_eos=True) for context in contexts]
        )
        for generation, one in zip(running, seen, strict=True):
            one.tokens = list(generation.tokens)
        steps, rows = model.engine.stats.steps - before[0], model.engine.stats.rows - before[1]
        for context, one in zip(contexts, seen, strict=True):
            one.record("after generating", context.logits)
    finally:
        for context in contexts:
            context.close()
    if rows < BATCH / 2 * steps:
        raise RuntimeError(f"the engine did not batch: {rows} rows in {steps} steps")
    for length, want, got in zip(lengths, alone, seen, strict=True):
        yield f"{length} tokens", want, got


def fork_is_exact(subject: Subject, model: Model, expected: Tokens, actual: Tokens) -> Iterator[Pair]:
    """Branches that decode in turns, and their parent, against contexts that were never forked."""
    tails = [[expected[-1 - i], expected[i], expected[i // 2]] for i in range(4)]
    fresh = []
    for tail in tails:
        with model.context(expected) as context:
            fresh.append(observe(context, tail))
    with model.context(actual) as parent:
        branches = [parent.fork() for _ in tails]
        seen = [Observation() for _ in tails]
        try:
            for one, branch in zip(seen, branches, strict=True):
                one.record(f"after {len(branch)}", branch.logits)
            for place in range(len(tails[0])):
                for one, branch, tail in zip(seen, branches, tails, strict=True):
                    branch.extend([tail[place]])
                    one.record(f"after {len(branch)}", branch.logits)
            for one, branch in zip(seen, branches, strict=True):
                written = observe(branch)
                one.tokens, one.logits["after generating"] = (
                    written.tokens,
                    written.logits["after generating"],
                )
        finally:
            for branch in branches:
                branch.close()
        for i, (want, got) in enumerate(zip(fresh, seen, strict=True)):
            yield f"branch {i}", want, got
        yield "the parent after its branches", fresh[0], observe(parent, tails[0])


def snapshot_resumes(subject: Subject, model: Model, expected: Tokens, actual: Tokens) -> Iterator[Pair]:
    """Continue here, and from a snapshot in a new process."""
    more = [expected[0], expected[-1]]
    with tempfile.TemporaryDirectory(prefix="llamay-verify-") as folder:
        path = Path(folder) / "context.llamay"
        with model.context(actual) as context:
            context.save(path)
        resumed, _ = subject.in_new_process(snapshot=path, more=more)
    with model.context(expected) as context:
        yield "resumed in a new process", observe(context, more), resumed


def threads_do_not_matter(subject: Subject, model: Model, expected: Tokens, actual: Tokens) -> Iterator[Pair]:
    """One, two and four threads."""
    yield from _setups(subject, model, expected, actual, [(f"{n} threads", {"threads": n}) for n in THREADS])


def pages_do_not_matter(subject: Subject, model: Model, expected: Tokens, actual: Tokens) -> Iterator[Pair]:
    """Pages of 16, 64 and 256 positions."""
    yield from _setups(
        subject, model, expected, actual, [(f"pages of {n}", {"page_tokens": n}) for n in PAGES]
    )


def kernel_sets_are_equal(subject: Subject, model: Model, expected: Tokens, actual: Tokens) -> Iterator[Pair]:
    """Every kernel set that this CPU runs, each in a process of its own, against the one in use here."""
    prompt, more = expected[-40:-4], expected[-4:]
    with model.context(prompt) as context:
        here = observe(context, more)
    for name in subject.kernel_sets():
        there, used = subject.in_new_process(isa=name, prompt=actual[-40:-4], more=actual[-4:])
        if used != name:
            raise RuntimeError(f"kernel set {name} was asked for, and {used} ran")
        yield name, here, there


def _setups(
    subject: Subject, model: Model, expected: Tokens, actual: Tokens, setups: list[tuple[str, dict[str, Any]]]
) -> Iterator[Pair]:
    with model.context(expected[:-4]) as context:
        here = observe(context, expected[-4:])
    for name, changes in setups:
        with subject.loaded(**changes) as other, other.context(actual[:-4]) as context:
            yield name, here, observe(context, actual[-4:])


def _uneven(begin: int, ends: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield stretches of 7, 13, 64, 1, 31, … tokens that meet every one of `ends`."""
    sizes, i = (7, 13, 64, 1, 31, 2), 0
    for end in ends:
        while begin < end:
            step = min(sizes[i % len(sizes)], end - begin)
            yield begin, begin + step
            begin, i = begin + step, i + 1


def _other(token: int, vocabulary: int) -> int:
    return (token + 1) % vocabulary


CHECKS: tuple[Check, ...] = (
    Check("prefill == decode", prefill_equals_decode),
    Check("batch of 8 == each alone", batch_equals_alone),
    Check("fork == parent", fork_is_exact),
    Check("snapshot resumes in a new process", snapshot_resumes),
    Check("threads 1, 2, 4", threads_do_not_matter),
    Check("every kernel set of this CPU", kernel_sets_are_equal),
    Check("page sizes 16, 64, 256", pages_do_not_matter),
)

__all__ = ["CHECKS", "Check", "Result", "Setup", "verify"]
