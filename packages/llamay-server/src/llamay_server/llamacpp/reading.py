"""The bodies of /completion and /infill, read into a `Request` and a `Delivery`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from llamay_server.chat.profile import fill_from_profile, profile_max_tokens, profile_stop
from llamay_server.http.errors import invalid, unsupported
from llamay_server.pipeline.constraints import output_constraint
from llamay_server.pipeline.delivery import Delivery, generation_request, stop_list
from llamay_server.pipeline.infill import fill_prompt
from llamay_server.pipeline.prompts import read_native_prompts
from llamay_server.pipeline.sampling import sampling_options

if TYPE_CHECKING:
    from llamay_models import Request
    from llamay_server.engine.protocol import Model
    from llamay_server.http.exchange import Exchange
    from llamay_server.llamacpp.schema import InfillRequest, NativeRequest
    from llamay_server.services import Services
    from llamay_server.store import Profile


@dataclass(frozen=True, slots=True)
class NativeCompletion:
    """One prompt of a body.

    Attributes:
        prompt: its ids.
        request: the generation from it.
        delivery: the delivery of the generation.
        options: the sampling options, for the answer's settings.
        n_predict: the limit of tokens, for these settings; negative for none.

    """

    prompt: list[int]
    request: Request
    delivery: Delivery
    options: dict[str, Any]
    n_predict: int


def read_completions(
    data: NativeRequest, profile: Profile, model: Model, service: Services, exchange: Exchange
) -> list[NativeCompletion]:
    """Return one completion for each prompt. Raises a 400 for a field that is wrong or cannot be honoured."""
    prompts = read_native_prompts(data.prompt, model)
    if len(prompts) > service.config.max_n:
        raise invalid(f"prompt: at most {service.config.max_n} prompts, not {len(prompts)}", "prompt")
    read = _read(data, profile, model, service, exchange)
    return [
        replace(
            read,
            prompt=prompt,
            request=replace(read.request, prompt=prompt),
            delivery=replace(read.delivery, first_index=i),
        )
        for i, prompt in enumerate(prompts)
    ]


def read_infill(
    data: InfillRequest, profile: Profile, model: Model, service: Services, exchange: Exchange
) -> NativeCompletion:
    """Return the completion that fills the gap. Raises a 400 as `read_completions`, a 501 for a model that cannot."""
    limit = data.n_predict if data.n_predict is not None else data.max_tokens
    if not isinstance(data.prompt, str):
        raise invalid("prompt: it must be a text here", "prompt")
    prompt = fill_prompt(
        model,
        data.input_prefix,
        data.input_suffix,
        begun=data.prompt,
        extra=data.input_extra or (),
        reserve=max(1, limit if limit is not None and limit >= 0 else model.info.context_length // 8),
        exchange=exchange,
    )
    read = _read(data, profile, model, service, exchange)
    return replace(read, prompt=prompt, request=replace(read.request, prompt=prompt))


def _read(
    data: NativeRequest, profile: Profile, model: Model, service: Services, exchange: Exchange
) -> NativeCompletion:
    """Return the completion of a body, whose prompt is still to be set."""
    fill_from_profile(data, profile)
    most = data.n_predict if data.n_predict is not None else data.max_tokens
    if most is None:
        most = profile_max_tokens(profile)
    options = sampling_options(data, model)
    if data.post_sampling_probs:
        if "post_sampling_logprobs" not in model.info.sampling_options:
            raise unsupported("post_sampling_probs")
        options["post_sampling_logprobs"] = True
    request = generation_request(
        data,
        options,
        max_tokens=most,
        stop=stop_list(profile_stop(profile) if data.stop is None else data.stop),
        logprobs=data.n_probs or None,
        tenant=service.tenant(exchange, data.cache_salt),
    )
    delivery = Delivery(
        constraint=output_constraint(data), progress=bool(data.return_progress and data.stream)
    )
    return NativeCompletion([], request, delivery, options, -1 if most is None else most)
