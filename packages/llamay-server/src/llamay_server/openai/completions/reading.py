"""The body of a completion, read into prompts, a `Request` and a `Delivery`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from llamay_server.chat.profile import fill_from_profile, profile_max_tokens, profile_stop
from llamay_server.http.errors import invalid, unsupported
from llamay_server.pipeline.constraints import output_constraint
from llamay_server.pipeline.delivery import Delivery, generation_request, stop_list
from llamay_server.pipeline.infill import can_fill, fill_prompt
from llamay_server.pipeline.prompts import read_prompts
from llamay_server.pipeline.sampling import sampling_options

if TYPE_CHECKING:
    from llamay_models import Request
    from llamay_server.engine.protocol import Model
    from llamay_server.http.exchange import Exchange
    from llamay_server.openai.completions.schema import CompletionRequest
    from llamay_server.services import Services
    from llamay_server.store import Profile


@dataclass(frozen=True, slots=True)
class Completion:
    """The parts of a completion.

    Attributes:
        prompts: the prompts as ids.
        generation: the generation from each prompt.
        delivery: the choices that are generated for each prompt.
        wanted: how many choices of each prompt are given, the likeliest of those that are generated.

    """

    prompts: list[list[int]]
    generation: Request
    delivery: Delivery
    wanted: int


def read_request(
    data: CompletionRequest, profile: Profile, model: Model, service: Services, exchange: Exchange
) -> Completion:
    """Return the parts of a completion. Raises a 400 for a field that is wrong or cannot be honoured."""
    fill_from_profile(data, profile)
    if data.stop is None:
        data.stop = profile_stop(profile)
    if data.max_tokens is None:
        data.max_tokens = profile_max_tokens(profile)
    if data.context:
        raise unsupported("context")
    if data.prompt_logprobs is not None and data.stream:
        raise unsupported("prompt_logprobs", "a stream does not tell them")
    if data.suffix and not can_fill(model):
        raise unsupported("suffix", "this model was not trained to fill in the middle")
    if data.suffix and not isinstance(data.prompt, str):
        raise invalid("suffix: it needs a prompt that is one text", "suffix")
    n = data.n or 1
    generated = data.best_of or n
    if generated < n:
        raise invalid("best_of: it must not be less than n", "best_of")
    if generated > n and data.stream:
        raise invalid("best_of: which choices are best is known when all are there; do not stream", "best_of")
    most = 16 if data.max_tokens is None else data.max_tokens
    if data.suffix and isinstance(data.prompt, str):
        reserve = max(1, most)
        prompts = [fill_prompt(model, data.prompt, data.suffix, reserve=reserve, exchange=exchange)]
    else:
        prompts = read_prompts(data.prompt, model)
    if generated * len(prompts) > service.config.max_n:
        field = "n" if generated == n else "best_of"
        raise invalid(f"{field}: at most {service.config.max_n} choices over all prompts", field)
    return Completion(
        prompts,
        generation_request(
            data,
            sampling_options(data, model),
            max_tokens=most,
            stop=stop_list(data.stop),
            # The likeliest choices are found by their scores.
            logprobs=0 if data.logprobs is None and generated > n else data.logprobs,
            tenant=service.tenant(exchange, data.cache_salt),
        ),
        Delivery(
            choices=generated,
            constraint=output_constraint(data, data.response_format),
            include_stop=bool(data.include_stop_str_in_output),
            progress=bool(data.return_progress and data.stream),
        ),
        wanted=n,
    )
