"""One request in two records: the engine's generation, and the server's delivery of it.

A dialect reads its body into two records, and nothing is copied from them afterwards:

    body (a struct of the dialect) ──> Request   what the engine generates: llamay_models.Request
                                   └─> Delivery  the server's part: choices, progress, the constraint's source

The prompt of the `Request` is set once it is known: the prompt of a conversation, when it has been rendered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llamay_server.http.errors import invalid

if TYPE_CHECKING:
    from llamay_models import Request
    from llamay_server.engine.constraint import OutputConstraint
    from llamay_server.pipeline.sampling import SamplingFields


@dataclass(frozen=True, slots=True)
class Delivery:
    """The way the server delivers the output of a `Request`.

    Attributes:
        choices: how many texts are generated from the prompt. Choice i is the text of a request with seed + i.
        first_index: the index of the first choice, in a request of several prompts.
        constraint: the constraint of the output; every choice gets a token constraint compiled from it.
        include_stop: whether the stop string that ended a text is delivered, too.
        progress: whether the progress of the prefill is delivered.
        reasoning_budget: tokens after which the server closes the model's reasoning, so that the model answers.
        bind_calls: whether optional tool calls are constrained as well, in their form.
        calls_in_parts: whether the arguments of a call are delivered while they are written, where a grammar makes
            sure that they become whole.

    """

    choices: int = 1
    first_index: int = 0
    constraint: OutputConstraint | None = None
    include_stop: bool = False
    progress: bool = False
    reasoning_budget: int | None = None
    bind_calls: bool = False
    calls_in_parts: bool = False


def generation_request(
    fields: SamplingFields,
    options: Mapping[str, Any],
    *,
    max_tokens: int | None = None,
    stop: tuple[str, ...] = (),
    logprobs: int | None = None,
    reuse: bool = True,
    tenant: str = "",
) -> Request:
    """Return the engine's request for sampling fields, whose prompt is still to be set.

    Args:
        fields: the sampling fields of the body.
        options: the engine's options that `sampling_options` made of the fields.
        max_tokens: None or negative for no limit.
        stop: stop strings, as `stop_list` gives them.
        logprobs: how many alternatives each token's score has; None for no scores.
        reuse: whether the prefix cache may be used; `cache_prompt` false forbids it, too.
        tenant: the namespace within which computed prefixes are shared.

    """
    from llamay_models import Request, Sampling

    # The engine's seeds are unsigned.
    sampling = Sampling(**{**options, "seed": options["seed"] % 2**64}, logprobs=logprobs)
    return Request(
        prompt=(),
        sampling=sampling,
        max_tokens=None if max_tokens is None or max_tokens < 0 else max_tokens,
        stop=stop,
        ignore_eos=bool(fields.ignore_eos),
        random_stream=0,
        tenant=tenant,
        reuse=reuse and fields.cache_prompt is not False,
        # As vLLM has it, a lower number is more urgent; the engine's highest priority comes first.
        priority=-(fields.priority or 0),
        timeout=time_limit(fields),
    )


def time_limit(fields: SamplingFields) -> float | None:
    """Return the seconds that a generation may take once submitted: by `timeout` and `t_max_predict_ms`."""
    limits = [fields.timeout] if fields.timeout is not None else []
    if (milliseconds := fields.t_max_predict_ms) is not None and milliseconds > 0:
        limits.append(milliseconds / 1000)
    return min(limits, default=None)


def stop_list(value: str | list[str] | None, param: str = "stop") -> tuple[str, ...]:
    """Stop strings without empty ones. Their number is bounded, because each is looked for after every token."""
    strings = [value] if isinstance(value, str) else value or []
    if len(strings) > 256:
        raise invalid(f"{param}: at most 256 stop strings, not {len(strings)}", param)
    return tuple(s for s in strings if s)
