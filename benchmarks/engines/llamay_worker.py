"""The llamay side of a comparison: a process that measures on request."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from process_memory import peak, resident
from worker import answers, arguments, requests, wait

if TYPE_CHECKING:
    from llamay_models import Context, Model, Sampling


def main() -> None:
    options = arguments(variants=False)
    say = answers()

    import llamay_models
    from llamay_models import Sampling

    base = resident()
    # Every prompt is read anew, as it is by the peers.
    model = llamay_models.load(
        options.model,
        threads=options.threads,
        ctx_size=options.context,
        # Cached prefixes and right drafts are not computed one by one, and these are rates of computing.
        prefix_cache=0,
        speculation=False,
    )
    if options.once:
        context = model.context("The")
        context.generate(Sampling(temperature=0.0, seed=0), max_tokens=1, ignore_eos=True).wait()
        say({"first": True, "base": base, "peak": peak(), "state": context.nbytes})
        wait()
        return
    worker = Worker(model, options.threads)
    say(worker.hello())
    for what, details in requests():
        say(getattr(worker, what)(**details))


class Worker:
    """One method for each request; each returns its answer."""

    def __init__(self, model: Model, threads: int) -> None:
        import llamay_kernels

        self.model = model
        self.threads = llamay_kernels.Threads(threads)
        self.base: Context | None = None
        self.base_tokens: list[int] = []

    def hello(self) -> dict[str, Any]:
        """Return the quantities that bound the model's rates."""
        import llamay_kernels
        from llamay_cli.verification.measurement import decode_bytes, matrix_parameters

        matrices = [t for t in self.model.program.tensors if t.rows > 1 and not t.name.startswith("position")]
        return {
            "vocabulary": self.model.vocab_size,
            "operations": 2 * matrix_parameters(self.model),
            "integer": not {t.format for t in matrices} & {"F32", "F16", "BF16"},
            "weight_bytes": decode_bytes(self.model),
            "state_bytes": self.model.pool.layout.position_bytes,
            "isa": llamay_kernels.isa(),
        }

    def limits(self) -> dict[str, Any]:
        """Probe the limits of this machine at the moment."""
        import llamay_kernels

        limits = llamay_kernels.limits(self.threads)
        return {"read_bandwidth": limits.read_bandwidth, "int8_ops": limits.int8_ops}

    def prefill(self, tokens: list[int]) -> dict[str, Any]:
        """Read a prompt, to the logits after its last token."""
        began = time.perf_counter()
        with self.model.context(tokens) as context:
            context.logits  # noqa: B018 - the peers' figures end with them too
            return {"rate": len(tokens) / (time.perf_counter() - began)}

    def decode(self, tokens: list[int], count: int) -> dict[str, Any]:
        """Write after a prompt, which is read once for all requests with it."""
        with self._prompt(tokens).fork() as context:
            generation = context.generate(self._greedy(), max_tokens=count, ignore_eos=True)
            generation.wait()
            return {"rate": (count - 1) / generation.timings.decode}

    def streams(self, prompts: list[list[int]], count: int) -> dict[str, Any]:
        """Write after several prompts at once; the rate is of all together."""
        return self._together([self.model.context(tokens) for tokens in prompts], count)

    def branches(self, tokens: list[int], number: int, count: int) -> dict[str, Any]:
        """Write several continuations of one prompt at once; the rate is of all together."""
        return self._together(self._prompt(tokens).fork(number), count)

    def around(self, count: int) -> dict[str, Any]:
        """Measure the overhead of a step beside the model's own work: the whole, and its parts by themselves."""
        from llamay_models import Sampling

        parts = self.model._parts
        assert parts is not None
        with self._prompt(list(range(300, 308))).fork() as context:
            parts.plan.measure(True)
            generation = context.generate(Sampling(seed=1), max_tokens=count, ignore_eos=True)
            generation.wait()
            profile = parts.plan.profile()
            parts.plan.measure(False)
            step = generation.timings.decode / (count - 1)
            rest = max(0.0, step - profile["total"] / max(1, profile["runs"]))
            return {
                "step": step,
                "rest": rest,
                "fraction": rest / step,
                "parts": self._parts_of_a_step(context),
            }

    def _parts_of_a_step(self, context: Context) -> dict[str, float]:
        """Return the median seconds of each, once."""
        import numpy as np

        import llamay_kernels

        logits, history = context.logits, np.asarray(context.tokens, np.int32)
        sampler, tokenizer = llamay_kernels.Sampler(seed=1), self.model.tokenizer
        assert tokenizer is not None
        decoder, text = tokenizer.stream_decoder(), "the cat sat on the mat. " * 40
        tokens = tokenizer.encode(text)
        with self.model.pool.context() as empty:

            def append() -> None:
                with empty.reserve(1) as lease:
                    lease.commit([0])

            return {
                "sample": _median(lambda: sampler.sample(logits, 7, history)),
                "detokenize": _median(lambda: decoder.push(65)),
                "append": _median(append),
                "tokenize": _median(lambda: tokenizer.encode(text), 20) / len(tokens),
            }

    def _together(self, contexts: list[Context], count: int) -> dict[str, Any]:
        from llamay_models import Sampling

        running = [
            context.generate(Sampling(temperature=1.0, seed=i, top_k=40), max_tokens=count, ignore_eos=True)
            for i, context in enumerate(contexts)
        ]
        for generation in running:
            generation.wait()
        rate = len(running) * (count - 1) / max(generation.timings.decode for generation in running)
        for context in contexts:
            context.close()
        return {"rate": rate}

    def _prompt(self, tokens: list[int]) -> Context:
        if self.base is None or tokens != self.base_tokens:
            if self.base is not None:
                self.base.close()
            self.base, self.base_tokens = self.model.context(tokens), tokens
        return self.base

    def _greedy(self) -> Sampling:
        from llamay_models import Sampling

        return Sampling(temperature=0.0, seed=0)


def _median(work: Callable[[], object], times: int = 200) -> float:
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
