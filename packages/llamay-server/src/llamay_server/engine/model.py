"""llamay_models as the engine that `_protocol` describes. Nothing but the `_adapter` modules imports it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llamay_kv
import llamay_models
from llamay_models import errors
from llamay_server.config import Config, ConfigError
from llamay_server.engine import protocol as p
from llamay_server.engine.errors import translated
from llamay_server.engine.formats import reasoning_of
from llamay_server.engine.info import SAMPLING, model_info
from llamay_server.engine.scales import Scales
from llamay_server.engine.snapshot_key import read_key
from llamay_server.engine.stats import counted, timed
from llamay_server.engine.values import Context, Generation

if TYPE_CHECKING:
    from llamay_models.chat import ChatTemplate


read_adapter = llamay_models.adapters.read_adapter


def read_samplers(value: list[str] | str) -> tuple[str, ...]:
    """The names of samplers that a request means. Raises ValueError."""
    try:
        return llamay_models.engine.read_samplers(value)
    except errors.SamplingError as e:
        raise ValueError(str(e)) from None


def load(config: Config) -> p.Loader:
    """A loader with this configuration's settings."""
    key = read_key(config.ctx_key) if config.ctx_key else None
    try:
        llamay_models.engine.Stall.parse(config.max_stall)
    except ValueError as e:
        raise ConfigError(str(e)) from None
    # One folder and one budget for all models, which may load at the same time.
    disk = None
    if config.prefix_cache_dir:
        disk = llamay_kv.DiskCache(
            config.prefix_cache_dir,
            budget_bytes=config.prefix_cache_disk,
            min_free_bytes=config.prefix_cache_free,
            ram_bytes=config.prefix_cache_ram,
            key=key,
        )

    def loader(
        path: Path,
        *,
        progress: p.Progress | None = None,
        draft: Path | None = None,
        adapters: Sequence[tuple[Path, float]] = (),
    ) -> p.Model:
        try:
            # One of scale 0 is not in use, and may be later.
            opened = [llamay_models.adapters.Adapter.open(*each) for each in adapters]
            model = llamay_models.load(
                path,
                threads=config.threads or None,
                kv=config.kv,  # type: ignore[arg-type]
                ctx_size=config.ctx_size or None,
                kv_budget=config.ctx_mem_budget or None,
                spill=_spill(config, key),
                prefix_cache=None if config.prefix_cache < 0 else config.prefix_cache,
                disk_cache=disk,
                packed_cache=config.packed_cache or None,
                max_stall=config.max_stall,
                draft=draft,
                adapters=opened,
                progress=progress,
            )
        except errors.ArchitectureError as e:
            raise p.UnknownArchitecture(str(e)) from e
        except errors.OutOfMemory as e:
            raise p.OutOfMemory(str(e)) from e
        except (errors.LlamayError, ValueError, OverflowError) as e:
            raise p.UnusableModel(str(e)) from e
        return Engine(model, key, strict=config.profile == "enterprise", adapters=opened)

    return loader


def _spill(config: Config, key: llamay_kv.Key | None) -> llamay_kv.Spill | None:
    if not config.ctx_spill_dir:
        return None
    Path(config.ctx_spill_dir).mkdir(mode=0o700, parents=True, exist_ok=True)
    return llamay_kv.Spill(config.ctx_spill_dir, config.ctx_spill, key=key)


class Engine:
    """A model of llamay_models as the server's `Model`."""

    def __init__(
        self,
        model: llamay_models.Model,
        key: llamay_kv.Key | None = None,
        *,
        strict: bool = False,
        adapters: Sequence[llamay_models.adapters.Adapter] = (),
    ) -> None:
        self.model, self._key, self._strict = model, key, strict
        self.info = model_info(model)
        self._scales = Scales(model, adapters, self, self._sibling) if adapters else None
        tokenizer = model.tokenizer
        self._grammars = _grammars(tokenizer, model.vocab_size) if tokenizer is not None else None
        self._template: ChatTemplate | None = None

    def _sibling(self, model: llamay_models.Model) -> Engine:
        """The same weights in other scales of the adapters; what was set of this one holds for that."""
        made = copy.copy(self)
        made.model = model
        return made

    @property
    def adapters(self) -> Sequence[p.Adapter]:
        """LoRA adapters and the scales of requests that say none."""
        if self._scales is None:
            return ()
        pairs = zip(self._scales.adapters, self._scales.default, strict=True)
        return [p.Adapter(adapter.path, scale) for adapter, scale in pairs]

    def set_scales(self, scales: Sequence[float]) -> None:
        """Set the scales of requests that say none."""
        if self._scales is not None:
            self._scales.default = tuple(scales)

    def adapted(self, scales: Sequence[float] | None = None) -> p.Model:
        """Itself in these scales."""
        if self._scales is None:
            return self
        with translated():
            return self._scales.at(None if scales is None else tuple(scales))

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Text to ids."""
        with translated():
            return self.model.encode(text, add_special=add_special, parse_special=parse_special)

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token stands for, empty for control tokens."""
        words = self.model.tokenizer
        return b"" if words is None or words.is_special(token) else words.token_bytes(token)

    def token_name(self, token: int) -> str:
        """A token as the vocabulary spells it."""
        return "" if self.model.tokenizer is None else self.model.tokenizer.token_text(token)

    def decode(self, tokens: Sequence[int]) -> str:
        """Ids to text."""
        with translated():
            return self.model.decode(tokens)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> p.Prompt:
        """A conversation as the model's template writes it."""
        if self.info.chat_template is None:
            raise p.BadPrompt(f"{self.info.name} has no chat template; use a completions route instead.")
        more = dict(options or {})
        if continue_final:
            # The template writes up to where the answer begins; what the answer begins with is plain text.
            head = self.render(messages[:-1], tools=tools, options=options)
            start = messages[-1].get("content") or ""
            return p.Prompt(
                head.text + start, [*head.tokens, *self.encode(start, add_special=False, parse_special=False)]
            )
        with translated():
            try:
                more["add_generation_prompt"] = add_generation_prompt
                words = self.model.tokenizer
                if self._template is not None and words is not None:
                    ids = list(self._template.tokenize(words, messages, tools=tools, **more))
                else:
                    ids = self.model.render(messages, tools=tools, **more)
            except (errors.LlamayError, MemoryError):
                raise
            except Exception as e:
                raise p.BadPrompt(f"The model's chat template refused the messages: {e}") from e
        return p.Prompt(self.model.decode(ids), list(ids))

    def use_template(self, source: str) -> None:
        """Write conversations with this template, Jinja or Go's, instead of the file's."""
        from llamay_models.chat import ChatTemplate, ChatTemplateError, as_jinja

        if self.model.tokenizer is None:
            raise p.BadPrompt(f"{self.info.name} has no tokenizer, so no template can be used with it.")
        try:
            self._template = ChatTemplate(as_jinja(source), bos=self.info.bos_token, eos=self.info.eos_token)
        except ChatTemplateError as e:
            raise p.BadPrompt(str(e)) from e
        self.info = dataclasses.replace(
            self.info,
            chat_template=source,
            template_takes_tools="tools" in source.lower(),
            template_thinks=reasoning_of(source) is not None,
        )

    def constraint(self, kind: str, value: Any) -> Any:
        """A token constraint."""
        if self._grammars is None:
            what = (
                "this model has no tokenizer"
                if self.model.tokenizer is None
                else "llamay-grammar is not installed"
            )
            raise p.UnsupportedConstraint(f"{what}, so the output cannot be bound")
        return self._grammars.constraint(kind, value)

    def submit(self, work: p.Work) -> Generation:
        """Queue a generation."""
        options = {name: value for name, value in work.sampling.items() if name in SAMPLING}
        options["seed"] = int(options.get("seed", 0)) % 2**64
        prompt = work.prompt.inner if isinstance(work.prompt, Context) else work.prompt
        with translated():
            request = llamay_models.Request(
                prompt,  # type: ignore[arg-type]
                llamay_models.Sampling(**options, logprobs=work.logprobs),
                work.max_tokens,
                work.stop,
                work.constraint,
                work.ignore_eos,
                stream=0,
                tenant=work.tenant,
                reuse=work.reuse,
                priority=work.priority,
                timeout=work.timeout,
                special=self._ids(work.special),
            )
            # A context goes on with the adapters that it was made with.
            model = prompt.model if isinstance(prompt, llamay_models.Context) else self.model
            return Generation(model.engine.submit(request))

    def _ids(self, names: Sequence[str]) -> list[int]:
        """Control tokens by name; what the vocabulary does not have is written as plain text anyway."""
        words = self.model.tokenizer
        if words is None or not names:
            return []
        found = [words.encode(name, add_special=False, parse_special=True) for name in names]
        return [ids[0] for ids in found if len(ids) == 1 and words.is_special(ids[0])]

    def context(
        self, tokens: Sequence[int], *, tenant: str = "", progress: p.Progress | None = None
    ) -> Context:
        """Read a prompt."""
        with translated():
            context = self.model.context(tokens, tenant=tenant, progress=progress)
        return Context(context, context.cached_tokens, self._key)

    def restore(
        self,
        path: Path,
        *,
        owner: str | None = None,
        markings: Collection[str] = (),
        progress: p.Progress | None = None,
    ) -> Context:
        """Read a snapshot. One that does not say what computed it is refused under the enterprise profile."""
        with translated(path):
            context = self.model.restore(
                path,
                keys=self._key,
                owner=owner,
                markings=markings,
                legacy="refuse" if self._strict else "allow",
                progress=progress,
            )
        return Context(context, 0, self._key)

    def embed(
        self,
        texts: Sequence[Sequence[int]],
        *,
        normalize: bool = True,
        dimensions: int | None = None,
        progress: p.Progress | None = None,
    ) -> p.Embeddings:
        """Pooled as the file says, else the last token's."""
        with translated():
            return self.model.embed(
                texts, normalize=normalize, dimensions=dimensions, tenant=None, progress=progress
            )

    def score(
        self, tokens: Sequence[int], *, top: int = 0, progress: p.Progress | None = None
    ) -> list[p.TokenScore]:
        """The model's own probabilities, before any sampling."""
        with translated():
            found = self.model.score(tokens, top=top, tenant=None, progress=progress)
        each = zip(found.tokens, found.logprobs.tolist(), found.top, strict=True)
        return [llamay_models.TokenScore(token, logprob, best) for token, logprob, best in each]

    def rerank(
        self, query: str, documents: Sequence[str], *, progress: p.Progress | None = None
    ) -> list[float]:
        """By the file's rank head, else by the cosine of embeddings."""
        with translated():
            scores: list[float] = self.model.rerank(query, documents, tenant=None, progress=progress).tolist()
            return scores

    def stats(self) -> Mapping[str, float]:
        """What the engine counts, in all scales of its adapters together."""
        return counted(self.model) if self._scales is None else self._scales.counted()

    def times(self) -> Mapping[str, p.Times]:
        """In the queue, to the first token, between tokens, and of a step."""
        return timed(self.model) if self._scales is None else self._scales.timed()

    def close(self) -> None:
        """Unload."""
        if self._scales is not None:
            self._scales.close()
        self.model.close()


def _grammars(tokenizer: Any, size: int) -> Any:
    try:
        from llamay_server.engine.grammar import Grammars
    except ImportError:
        return None
    return Grammars(tokenizer, size)
