"""`ServedModel`: a model of `llamay_models` as the server's `Model`."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import llamay_models
from llamay_models.errors import LlamayError, PromptError
from llamay_server.engine.constraint import OutputConstraint
from llamay_server.engine.formats import answer_format
from llamay_server.engine.grammar import compile_output
from llamay_server.engine.info import model_info
from llamay_server.engine.protocol import (
    Context,
    DurationHistogram,
    Floats,
    Labels,
    LoadedAdapter,
    Progress,
    Prompt,
)
from llamay_server.engine.scales import Scales
from llamay_server.engine.stats import engine_counts, engine_durations

if TYPE_CHECKING:
    import llamay_kv
    from llamay_models.chat import ChatTemplate
    from llamay_models.constraints import Compiled


class ServedModel:
    """A model of `llamay_models`, with adapter scales by request, a template and a snapshot key."""

    def __init__(
        self,
        model: llamay_models.Model,
        key: llamay_kv.Key | None = None,
        *,
        strict: bool = False,
        adapters: Sequence[llamay_models.adapters.Adapter] = (),
    ) -> None:
        """`key` encrypts snapshots; `strict` refuses snapshots without the identity of the model that computed them."""
        self.model, self._key, self._strict = model, key, strict
        self.info = model_info(model)
        self._scales = Scales(model, adapters, self, self._over) if adapters else None
        self._template: ChatTemplate | None = None

    def _over(self, model: llamay_models.Model) -> ServedModel:
        """Return the same served model over the same weights with other adapter scales; its template stays set."""
        made = copy.copy(self)
        made.model = model
        return made

    # -- LoRA adapters

    @property
    def adapters(self) -> Sequence[LoadedAdapter]:
        """LoRA adapters, each with the scale for requests that ask for none."""
        if self._scales is None:
            return ()
        pairs = zip(self._scales.adapters, self._scales.default, strict=True)
        return [LoadedAdapter(adapter.path, scale) for adapter, scale in pairs]

    def set_scales(self, scales: Sequence[float]) -> None:
        """Set the scales for requests that ask for none."""
        if self._scales is not None:
            self._scales.default = tuple(scales)

    def adapted(self, scales: Sequence[float] | None = None) -> ServedModel:
        """Return the model with these scales (blocking). Raises `QueueFullError` where too many others are in use."""
        if self._scales is None:
            return self
        return self._scales.at(None if scales is None else tuple(scales))

    # -- text and tokens

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Return the ids of a text."""
        return self.model.encode(text, add_special=add_special, parse_special=parse_special)

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes that a token stands for, empty for control tokens."""
        words = self.model.tokenizer
        return b"" if words is None or words.is_special(token) else words.token_bytes(token)

    def token_name(self, token: int) -> str:
        """Return a token as the vocabulary spells it."""
        return "" if self.model.tokenizer is None else self.model.tokenizer.token_text(token)

    def control_tokens(self, names: Sequence[str]) -> list[int]:
        """Return the ids of those names that are control tokens. The output has other names as plain text anyway."""
        words = self.model.tokenizer
        if words is None or not names:
            return []
        found = [words.encode(name, add_special=False, parse_special=True) for name in names]
        return [ids[0] for ids in found if len(ids) == 1 and words.is_special(ids[0])]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of ids."""
        return self.model.decode(tokens)

    # -- conversations

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """Return a conversation as the model's template writes it."""
        if self.info.chat_template is None:
            raise PromptError(f"{self.info.name} has no chat template; use a completions route instead.")
        more = dict(options or {})
        if continue_final:
            # The template writes up to the beginning of the answer; the part of the answer that is given is plain text.
            head = self.render(messages[:-1], tools=tools, options=options)
            start = messages[-1].get("content") or ""
            return Prompt(
                head.text + start, [*head.tokens, *self.encode(start, add_special=False, parse_special=False)]
            )
        more["add_generation_prompt"] = add_generation_prompt
        words = self.model.tokenizer
        try:
            if self._template is not None and words is not None:
                ids = list(self._template.tokenize(words, messages, tools=tools, **more))
            else:
                ids = self.model.render(messages, tools=tools, **more)
        except (LlamayError, MemoryError):
            raise
        except Exception as e:
            raise PromptError(f"The model's chat template refused the messages: {e}") from e
        return Prompt(self.model.decode(ids), list(ids))

    def use_name(self, name: str) -> None:
        """Go by this name, in place of the file's."""
        self.info = dataclasses.replace(self.info, name=name)

    def use_template(self, source: str) -> None:
        """Write conversations with this template, Jinja or Ollama's Go, instead of the file's."""
        from llamay_models.chat import ChatTemplate, ChatTemplateError, as_jinja

        if self.model.tokenizer is None:
            raise PromptError(f"{self.info.name} has no tokenizer, so no template can be used with it.")
        try:
            self._template = ChatTemplate(as_jinja(source), bos=self.info.bos_token, eos=self.info.eos_token)
        except ChatTemplateError as e:
            raise PromptError(str(e)) from e
        self.info = dataclasses.replace(
            self.info,
            chat_template=source,
            template_takes_tools="tools" in source.lower(),
            template_thinks=answer_format(source).reasoning is not None,
        )

    # -- generations and contexts

    def compile(self, wanted: OutputConstraint) -> Compiled:
        """Return a constraint, compiled for the model's vocabulary (blocking)."""
        return compile_output(self.model, wanted)

    def submit(self, request: llamay_models.Request) -> llamay_models.Generation:
        """Queue a generation. A context goes on with the adapter scales that it was made with."""
        prompt = request.prompt
        model = prompt.model if isinstance(prompt, llamay_models.Context) else self.model
        return model.engine.submit(request)

    def context(
        self, tokens: Sequence[int], *, tenant: str = "", progress: Progress | None = None
    ) -> Context:
        """Prefill a prompt (blocking)."""
        return self.model.context(tokens, tenant=tenant, progress=progress)

    def save(self, context: Context, path: Path, labels: Labels, *, progress: Progress | None = None) -> None:
        """Write a snapshot (blocking), encrypted where the server has a key."""
        own = cast("llamay_models.Context", context)
        own.save(path, key=self._key, owner=labels.owner, marking=labels.marking, progress=progress)

    def restore(
        self,
        path: Path,
        *,
        owner: str | None = None,
        markings: Collection[str] = (),
        progress: Progress | None = None,
    ) -> Context:
        """Read a snapshot (blocking). The enterprise profile refuses a snapshot without an identity."""
        return self.model.restore(
            path,
            keys=self._key,
            owner=owner,
            markings=markings,
            legacy="refuse" if self._strict else "allow",
            progress=progress,
        )

    # -- whole texts

    def embed(
        self,
        texts: Sequence[Sequence[int]],
        *,
        normalize: bool = True,
        dimensions: int | None = None,
        progress: Progress | None = None,
    ) -> Floats:
        """Return an embedding of each text (blocking), pooled as the file says, else the last token's."""
        return self.model.embed(
            texts, normalize=normalize, dimensions=dimensions, tenant=None, progress=progress
        )

    def score(
        self, tokens: Sequence[int], *, top: int = 0, progress: Progress | None = None
    ) -> list[llamay_models.TokenScore]:
        """Return the model's own log-probabilities (blocking), before any sampling."""
        found = self.model.score(tokens, top=top, tenant=None, progress=progress)
        each = zip(found.tokens, found.logprobs.tolist(), found.top, strict=True)
        return [llamay_models.TokenScore(token, logprob, best) for token, logprob, best in each]

    def rerank(
        self, query: str, documents: Sequence[str], *, progress: Progress | None = None
    ) -> list[float]:
        """Return the scores of the file's rank head, else the cosines of embeddings (blocking)."""
        scores: list[float] = self.model.rerank(query, documents, tenant=None, progress=progress).tolist()
        return scores

    # -- operation

    def stats(self) -> Mapping[str, float]:
        """Return the engine's gauges and counters, summed over all scales of its adapters."""
        return engine_counts(self.model) if self._scales is None else self._scales.counts()

    def durations(self) -> Mapping[str, DurationHistogram]:
        """Return the histograms of durations: in the queue, to the first token, between tokens, and of a step."""
        return engine_durations(self.model) if self._scales is None else self._scales.durations()

    def close(self) -> None:
        """Unload the model, with all scales of its adapters."""
        if self._scales is not None:
            self._scales.close()
        self.model.close()
