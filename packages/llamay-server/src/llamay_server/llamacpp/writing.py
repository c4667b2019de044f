"""Completions as llama.cpp's clients read them: one object, or partial objects."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from llamay_server.http.frames import sse
from llamay_server.openai.logprobs import chat_logprobs
from llamay_server.openai.objects import prefill_timings, prompt_progress, timings
from llamay_server.pipeline.events import ChoiceEnd, PrefillProgress
from llamay_server.pipeline.run import Run, RunEvent, merged_events
from llamay_server.pipeline.totals import Totals

if TYPE_CHECKING:
    from llamay_server.engine.protocol import Model
    from llamay_server.http.exchange import Exchange
    from llamay_server.llamacpp.reading import NativeCompletion
    from llamay_server.llamacpp.schema import NativeRequest
    from llamay_server.pipeline.admission import AdmissionControl


class NativeWriter:
    """Writes llama.cpp's completion object."""

    def __init__(
        self,
        completion: NativeCompletion,
        data: NativeRequest,
        name: str,
        model: Model,
        exchange: Exchange,
        admission: AdmissionControl,
    ) -> None:
        """`name` is the model's name in the answer."""
        self.data, self.model, self.name = data, model, name
        self.prompt, self.options = completion.prompt, completion.options
        self.index = completion.delivery.first_index
        self.parts: list[str] = []
        self.tokens: list[int] = []
        self.scores: list[Any] = []
        self.end = ChoiceEnd(self.index, "stop")
        self.totals = Totals()
        self.n_predict = completion.n_predict
        self.run = Run(model, completion.request, completion.delivery, exchange, admission, self.totals)

    def final(self) -> dict[str, Any]:
        """Return the whole object. At the end of a stream it does not repeat the text of the parts."""
        end, streamed = self.end, bool(self.data.stream)
        text = "".join(self.parts)
        tokens = [] if streamed else self.tokens
        scores = [] if streamed else self.scores
        kind = "limit" if end.reason == "length" else "word" if end.stop_sequence is not None else "eos"
        out = {
            "index": self.index,
            "content": "" if streamed else text,
            "tokens": tokens if self.data.return_tokens else [],
            "id_slot": 0,
            "stop": True,
            "model": self.name,
            "tokens_predicted": self.totals.completion_tokens,
            "tokens_evaluated": self.totals.prompt_tokens,
            "generation_settings": self._settings(),
            "prompt": self.model.decode(self.prompt),
            "has_new_line": "\n" in text,
            "truncated": self._full(),
            "stop_type": kind,
            "stopping_word": end.stop_sequence or "",
            "tokens_cached": self.totals.prompt_tokens + self.totals.completion_tokens,
            "timings": timings(self.totals),
        }
        if self.data.n_probs:
            out["completion_probabilities"] = self._probabilities(scores)
        if self.data.response_fields:
            return _pick(out, self.data.response_fields)
        return out

    def _settings(self) -> dict[str, Any]:
        """Return the settings of the generation. A bias of null bans a token; `ignore_eos` bans the end tokens."""
        biases = dict(self.options.get("logit_bias", {}))
        if self.data.ignore_eos:
            end = self.model.encode(self.model.info.eos_token, add_special=False, parse_special=True)
            biases |= dict.fromkeys(end[:1], -math.inf)
        told = [{"token": t, "bias": None if math.isinf(bias) else bias} for t, bias in biases.items()]
        return {
            **self.options,
            "logit_bias": told,
            "n_predict": self.n_predict,
            "ignore_eos": bool(self.data.ignore_eos),
            "n_probs": self.data.n_probs or 0,
            "stop": list(self.run.request.stops),
            "stream": bool(self.data.stream),
        }

    def _full(self) -> bool:
        """Return whether the model's context, rather than the request's limit, ended the text."""
        generated = self.totals.completion_tokens
        full = self.totals.prompt_tokens + generated >= self.model.info.context_length
        return self.end.reason == "length" and full and (self.n_predict < 0 or generated < self.n_predict)

    def _probabilities(self, scores: list[Any]) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = chat_logprobs(scores, self.model)["content"]
        for entry, score in zip(entries, scores, strict=True):
            entry["id"] = score.token
            for top, (token, _) in zip(entry["top_logprobs"], score.top, strict=True):
                top["id"] = token
        if not self.data.post_sampling_probs:
            return entries
        # Of the distribution after all samplers, llama.cpp tells probabilities, not their logarithms.
        return [{**_probable(e), "top_probs": [_probable(top) for top in e["top_logprobs"]]} for e in entries]

    def part(self, event: RunEvent) -> dict[str, Any] | None:
        """Return the partial object of an event; None for the end of the text."""
        if isinstance(event, ChoiceEnd):
            self.end = event
            return None
        if isinstance(event, PrefillProgress):
            told = {"index": self.index, "content": "", "tokens": [], "stop": False, "id_slot": 0}
            told["prompt_progress"] = prompt_progress(event)
            if self.data.timings_per_token:
                told["timings"] = prefill_timings(event)
            return told
        self.parts.append(event.text)
        self.tokens += event.tokens
        self.scores += event.scores
        part = {
            "index": self.index,
            "content": event.text,
            "tokens": list(event.tokens),
            "stop": False,
            "id_slot": 0,
        }
        if self.data.n_probs:
            part["completion_probabilities"] = self._probabilities(list(event.scores))
        if self.data.timings_per_token:
            part["timings"] = timings(self.run.totals_now())
        return part


async def native_frames(writers: list[NativeWriter]) -> AsyncGenerator[bytes, None]:
    """Yield a frame for each event, and one for the whole object of each prompt at the end."""
    if len(writers) == 1:
        writers[0].run.write_with(lambda delta: sse(writers[0].part(delta)))
    async with contextlib.aclosing(native_parts(writers)) as parts:
        async for part in parts:
            yield sse(part)


async def native_parts(writers: list[NativeWriter]) -> AsyncGenerator[dict[str, Any], None]:
    """Yield a partial object for each event, and the whole one of each prompt at the end."""
    async with contextlib.aclosing(merged_events([writer.run for writer in writers])) as events:
        async for event in events:
            if (part := writers[event.index].part(event)) is not None:
                yield part
    for writer in writers:
        yield writer.final()


def _probable(entry: dict[str, Any]) -> dict[str, Any]:
    kept = {key: entry[key] for key in ("id", "token", "bytes")}
    return {**kept, "prob": math.exp(entry["logprob"])}


def _pick(value: dict[str, Any], paths: list[str]) -> dict[str, Any]:
    """Return only the keys asked for; a slash goes one level down."""
    out: dict[str, Any] = {}
    for path in paths:
        node: Any = value
        for key in path.split("/"):
            if not isinstance(node, dict) or key not in node:
                break
            node = node[key]
        else:
            out[path] = node
    return out
