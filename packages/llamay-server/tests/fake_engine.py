"""A deterministic engine without weights: bytes are tokens, and the next one is a function of those before it.

It keeps the promises that the server relies on (prefill == decode, fork == parent, held characters and stop strings,
cancel within a step) and counts what lives, so that tests can see whether the server frees what it took.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
import time
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import llamay_models
from llamay_models import errors
from llamay_models.engine import FinishReason, Generation, Piece, Request, Sampling, TokenScore
from llamay_models.engine.requests.channel import Channel
from llamay_server.engine import protocol as p
from llamay_server.engine.constraint import OutputConstraint, UnsupportedConstraintError

SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
BOS, EOS, IM_START, IM_END = range(256, 260)
VOCAB = 300
WORDS = ["alpha", "beta", "naïve", "日本語", "👩‍👩‍👧", "gamma", "é́", "delta", "one", "two", "Ω", "end."]
PAGE = 64
OPTIONS = frozenset(
    [
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "repeat_penalty",
        "repeat_last_n",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "seed",
    ]
)


def next_token(tokens: Sequence[int], seed: int) -> int:
    """The token after these: words, chosen by a hash of all that stands before the word."""
    start = len(tokens)
    while start and tokens[start - 1] < 256 and tokens[start - 1] != 32:
        start -= 1
    digest = hashlib.sha256(repr((list(tokens[:start]), seed)).encode()).digest()
    if digest[0] < 12 and start == len(tokens):
        return EOS
    word = WORDS[digest[1] % len(WORDS)].encode()
    partial = bytes(tokens[start:])
    if word.startswith(partial) and word != partial:
        return word[len(partial)]
    return 32


class FakeConstraint:
    """Makes the output a given text."""

    warnings = ()

    def __init__(self, text: str | None) -> None:
        self.text = text

    def matcher(self) -> FakeConstraint:
        return FakeConstraint(self.text)

    def fill_mask(self, mask: Any) -> None:
        mask[:] = 0xFFFFFFFF

    def accept(self, token: int) -> None:
        """The fake engine writes the text by itself."""


def sample(schema: Any) -> Any:
    """A small instance of a simple schema."""
    if schema is True or schema == {}:
        return {}
    if not isinstance(schema, dict):
        raise UnsupportedConstraintError("the schema allows nothing")
    for keyword, kind in (("anyOf", list), ("enum", list), ("properties", dict)):
        if not isinstance(schema.get(keyword, kind()), kind):
            raise UnsupportedConstraintError(f"the keyword {keyword!r} at #/{keyword} is not as it must be")
    if "anyOf" in schema:
        return sample(schema["anyOf"][0])
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "unsupported" in schema:
        raise UnsupportedConstraintError("the keyword 'unsupported' at #/unsupported is not supported")
    match schema.get("type"):
        case "object" | None:
            return {k: sample(v) for k, v in schema.get("properties", {}).items()}
        case "array":
            return [sample(schema.get("items", {}))]
        case "string":
            return "text"
        case "integer":
            return 7
        case "number":
            return 1.5
        case "boolean":
            return True
    return None


def _no_forks(channel: Channel, n: int) -> list[llamay_models.Generation]:
    raise NotImplementedError


class FakeGeneration(Generation):
    """Text from a thread of its own, on its way to the server through the engine's own channel."""

    def __init__(self, model: FakeModel, request: Request) -> None:
        self.model, self.request = model, request
        self.channel = Channel()
        super().__init__(self.channel, request.sampling or Sampling(), threading.Event(), _no_forks)
        context = request.prompt if isinstance(request.prompt, FakeContext) else None
        self._all = list(context.tokens if context else request.prompt)
        self._prompt_tokens = len(self._all)
        self._context = context
        self._made = 0
        self._cached = (
            self._prompt_tokens if context else model.match(self._all, request.tenant) if request.reuse else 0
        )
        self.channel.prompt_tokens, self.channel.cached_tokens = self._prompt_tokens, self._cached
        threading.Thread(target=self._thread, daemon=True).start()

    def _put(self, item: Piece) -> None:
        self.channel.put((item.text, item.tokens, item.logprobs))

    def _thread(self) -> None:
        with self.model.lock:
            self.model.live += 1
        reason: FinishReason = "error"
        error: Exception | None = None
        try:
            reason = self._run()
        except Exception as e:
            error = e
        finally:
            with self.model.lock:
                self.model.live -= 1
                self.model.ended += 1
            self.channel.finish(reason, error)  # type: ignore[arg-type]

    def _run(self) -> FinishReason:
        request, model = self.request, self.model
        sampling = request.sampling or Sampling()
        while model.blocked.is_set() and not self.channel.cancelled:
            time.sleep(0.002)
        if request.prompt is not self._context:
            for _ in range(0, self._prompt_tokens - self._cached, PAGE):
                time.sleep(model.prefill_delay)
                if self.channel.cancelled:
                    return "cancelled"
            model.remember(self._all, request.tenant)
        if model.fail:
            raise errors.PromptError(model.fail)
        script = request.constraint.text if request.constraint is not None else None
        if script is None and model.script is not None:
            script = model.script(model.decode(self._all))
        planned = [*script.encode(), EOS] if script is not None else None
        seed = sampling.seed if sampling.temperature > 0 else 0
        out = _Assembler(request.stops)
        limit = request.max_tokens
        limit = model.info.context_length - len(self._all) if limit is None else limit
        while self._made < limit:
            time.sleep(model.decode_delay)
            if self.channel.cancelled:
                return "cancelled"
            token = planned[self._made] if planned is not None else next_token(self._all, seed)
            if token == EOS and request.ignore_eos:
                token = 32
            if model.fail_after and self._made >= model.fail_after:
                raise errors.PromptError("the engine stumbled")
            self._all.append(token)
            self._made += 1
            self.channel.completion_tokens = self._made
            if self._context is not None:
                self._context.tokens.append(token)
            scores: tuple[TokenScore, ...] = ()
            if sampling.logprobs is not None:
                nearest = range(token, token + sampling.logprobs)
                top = tuple((t % VOCAB, -0.25 - 0.5 * i) for i, t in enumerate(nearest))
                scores = (TokenScore(token, -0.25, top),)
            if token == EOS:
                self._put(Piece(out.flush(), (token,), (*out.scores, *scores)))
                return "stop"
            text, hit = out.feed(token, scores)
            if hit is not None:
                self.channel.stop_sequence = hit
                self._put(Piece(text, out.take_tokens(), out.take_scores()))
                return "stop"
            if text:
                self._put(Piece(text, out.take_tokens(), out.take_scores()))
        if rest := out.flush():
            self._put(Piece(rest, out.take_tokens(), out.take_scores()))
        return "length"


class _Assembler:
    """Bytes to text: whole characters only, and no part of a stop string that may still come."""

    def __init__(self, stop: Sequence[str]) -> None:
        self.stop, self.raw, self.held = stop, b"", ""
        self.tokens: list[int] = []
        self.scores: list[TokenScore] = []

    def feed(self, token: int, scores: tuple[TokenScore, ...]) -> tuple[str, str | None]:
        self.tokens.append(token)
        self.scores += scores
        self.raw += bytes([token]) if token < 256 else SPECIAL[token - 256].encode() if token < 260 else b""
        try:
            self.held += self.raw.decode()
            self.raw = b""
        except UnicodeDecodeError:
            if len(self.raw) < 4:
                return "", None
            self.held += self.raw.decode(errors="replace")
            self.raw = b""
        hits = [(self.held.find(s), s) for s in self.stop if s in self.held]
        if hits:
            at, which = min(hits)
            return self.held[:at], which
        keep = max((k for s in self.stop for k in range(1, len(s)) if self.held.endswith(s[:k])), default=0)
        ready = self.held[: len(self.held) - keep]
        self.held = self.held[len(ready) :]
        return ready, None

    def flush(self) -> str:
        text = self.held + self.raw.decode(errors="replace")
        self.held, self.raw = "", b""
        return text

    def take_tokens(self) -> tuple[int, ...]:
        out, self.tokens = tuple(self.tokens), []
        return out

    def take_scores(self) -> tuple[TokenScore, ...]:
        out, self.scores = tuple(self.scores), []
        return out


class FakeContext:
    def __init__(self, model: FakeModel, tokens: Sequence[int], cached: int = 0) -> None:
        self.model, self.tokens, self.cached_tokens, self.closed = model, list(tokens), cached, False
        self.marking: str | None = None
        with model.lock:
            model.contexts += 1

    @property
    def page_count(self) -> int:
        return -(-len(self.tokens) // PAGE)

    @property
    def nbytes(self) -> int:
        return self.page_count * 1024

    def __len__(self) -> int:
        return len(self.tokens)

    def fork(self) -> FakeContext:
        assert not self.closed
        return FakeContext(self.model, self.tokens, len(self.tokens))

    def truncate(self, n: int) -> None:
        del self.tokens[n:]

    def extend(self, tokens: Sequence[int], *, progress: p.Progress | None = None) -> None:
        for i in range(0, len(tokens), PAGE):
            time.sleep(self.model.prefill_delay)
            if progress:
                progress("reading", i, len(tokens))
        if progress:
            progress("reading", len(tokens), len(tokens))
        self.tokens += tokens

    @property
    def logits(self) -> p.Floats:
        """All tokens so far decide, so that a wrong context or order would show."""
        seen = zlib.crc32(repr(self.tokens).encode())
        weights = [1 + zlib.crc32(b"%d %d" % (seen, token)) % 9 for token in range(VOCAB)]
        return np.log(np.array(weights, np.float32))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            with self.model.lock:
                self.model.contexts -= 1


class FakeModel:
    """Set `script` to choose replies, the delays to slow it down, `blocked` to keep everything in the queue."""

    def __init__(
        self,
        name: str = "fake",
        *,
        context_length: int = 4096,
        trained_length: int | None = None,
        takes_tools: bool = True,
        thinks: bool = False,
        script: Callable[[str], str | None] | None = None,
        sha: str = "a" * 64,
    ) -> None:
        self.info = p.ModelInfo(
            name=name,
            architecture="fake",
            context_length=context_length,
            trained_length=trained_length or context_length,
            vocab_size=VOCAB,
            embedding_length=64,
            n_parameters=1_000,
            nbytes=4_000,
            quantization="F32",
            chat_template="chatml" + " tools" * takes_tools + " <think>" * thinks,
            metadata={
                "general.architecture": "fake",
                "fake.context_length": trained_length or context_length,
            },
            bos_token="<s>",
            eos_token="</s>",
            template_takes_tools=takes_tools,
            template_thinks=thinks,
            sampling_options=OPTIONS,
        )
        self.script = script
        self.sha = sha
        self.prefill_delay = self.decode_delay = 0.0
        self.blocked = threading.Event()
        self.fail = ""
        self.fail_after = 0
        self.disk_full = False
        self.lock = threading.Lock()
        self.live = self.ended = self.contexts = 0
        self.closed = False
        self._seen: dict[str, list[list[int]]] = {}

    adapters: Sequence[p.LoadedAdapter] = ()

    def set_scales(self, scales: Sequence[float]) -> None:
        raise AssertionError("there are no adapters")

    def adapted(self, scales: Sequence[float] | None = None) -> FakeModel:
        return self

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        ids = [BOS] if add_special else []
        while text:
            hits = [(i, s) for s in SPECIAL if (i := text.find(s)) >= 0] if parse_special else []
            at, name = min(hits, default=(len(text), ""))
            ids += text[:at].encode()
            if name:
                ids.append(256 + SPECIAL.index(name))
            text = text[at + len(name) :]
        return ids

    def token_bytes(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else b""

    def token_name(self, token: int) -> str:
        return chr(token) if token < 256 else SPECIAL[token - 256] if token < 260 else f"<unused{token}>"

    def control_tokens(self, names: Sequence[str]) -> list[int]:
        return [256 + SPECIAL.index(name) for name in names if name in SPECIAL]

    def decode(self, tokens: Sequence[int]) -> str:
        raw = b"".join(bytes([t]) if t < 256 else self.token_name(t).encode() for t in tokens)
        return raw.decode(errors="replace")

    def use_name(self, name: str) -> None:
        self.info = dataclasses.replace(self.info, name=name)

    def use_template(self, source: str) -> None:
        self.info = dataclasses.replace(self.info, chat_template=source)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> p.Prompt:
        texts: list[str] = []
        ids: list[int] = []

        def say(part: str, *, special: bool) -> None:
            texts.append(part)
            ids.extend(self.encode(part, add_special=False, parse_special=special))

        if tools:
            say("<|im_start|>tools\n", special=True)
            say(json.dumps(tools), special=False)
            say("<|im_end|>\n", special=True)
        for i, m in enumerate(messages):
            say(f"<|im_start|>{m['role']}\n", special=True)
            if thought := m.get("reasoning_content"):
                say(f"<think>{thought}</think>", special=False)
            say(m.get("content") or "", special=False)
            for call in m.get("tool_calls") or ():
                function = call["function"]
                say(f"<tool_call>{json.dumps(function)}</tool_call>", special=False)
            if not (continue_final and i == len(messages) - 1):
                say("<|im_end|>\n", special=True)
        if add_generation_prompt and not continue_final:
            say("<|im_start|>assistant\n", special=True)
        return p.Prompt("".join(texts), ids)

    def compile(self, wanted: OutputConstraint) -> FakeConstraint:
        kind, value = wanted.kind, wanted.value
        if wanted.reasoning is not None and kind != "tools":
            answer = self.compile(dataclasses.replace(wanted, reasoning=None))
            return FakeConstraint(f"hm</think>\n{answer.text}" if wanted.reasoning[2] else answer.text)
        if kind == "json_schema":
            return FakeConstraint(json.dumps(sample(value)))
        if kind == "tools":
            arguments = {
                tool["function"]["name"]: sample({"type": "object", **tool["function"]["parameters"]})
                for tool in value["tools"]
            }
            if value["choice"] == "auto":
                return FakeConstraint(
                    None if value["answer"] is None else json.dumps(sample(value["answer"]))
                )
            name = value["choice"] if value["choice"] in arguments else next(iter(arguments))
            call = json.dumps({"name": name, "arguments": arguments[name]})
            return FakeConstraint(f"<tool_call>\n{call}\n</tool_call>")
        if kind == "json_object":
            return FakeConstraint('{"any": "thing"}')
        if kind == "regex":
            return FakeConstraint(value.split("|")[0].replace("\\", ""))
        if "root" not in value:
            raise UnsupportedConstraintError("the grammar has no rule called root")
        return FakeConstraint([*value.split('"'), "", ""][1])

    def submit(self, request: Request) -> FakeGeneration:
        return FakeGeneration(self, request)

    def context(
        self, tokens: Sequence[int], *, tenant: str = "", progress: p.Progress | None = None
    ) -> FakeContext:
        cached = self.match(list(tokens), tenant)
        for i in range(cached, len(tokens), PAGE):
            time.sleep(self.prefill_delay)
            if progress:
                progress("reading", i, len(tokens))
        if progress:
            progress("reading", len(tokens), len(tokens))
        self.remember(list(tokens), tenant)
        return FakeContext(self, tokens, cached)

    def save(
        self, context: FakeContext, path: Path, labels: p.Labels, *, progress: p.Progress | None = None
    ) -> None:
        if self.disk_full:
            raise OSError(28, "No space left on device")
        about = {
            "sha": self.sha,
            "tokens": list(context.tokens),
            "owner": labels.owner,
            "marking": labels.marking,
        }
        body = json.dumps(about).encode()
        path.write_bytes(b"FAKE" + zlib.crc32(body).to_bytes(4, "little") + body)

    def restore(
        self,
        path: Path,
        *,
        owner: str | None = None,
        markings: Collection[str] = (),
        progress: p.Progress | None = None,
    ) -> FakeContext:
        raw = path.read_bytes()
        if raw[:4] != b"FAKE" or zlib.crc32(raw[8:]).to_bytes(4, "little") != raw[4:8]:
            raise errors.SnapshotError("the snapshot is damaged or cut short")
        body = json.loads(raw[8:])
        if body["sha"] != self.sha:
            raise errors.IdentityMismatchError(
                f"the snapshot was made by weights {body['sha'][:8]}, not {self.sha[:8]}",
                field="weights",
                wanted=self.sha,
                stored=body["sha"],
            )
        if body["owner"] not in (None, owner):
            raise errors.NotAllowedError("the snapshot belongs to somebody else")
        if body["marking"] is not None and body["marking"] not in markings:
            raise errors.NotAllowedError(f"the snapshot is marked {body['marking']!r}")
        context = FakeContext(self, body["tokens"])
        context.marking = body["marking"]
        return context

    def match(self, tokens: list[int], tenant: str) -> int:
        best = 0
        for seen in self._seen.get(tenant, ()):
            n = 0
            for a, b in zip(seen, tokens, strict=False):
                if a != b:
                    break
                n += 1
            best = max(best, n)
        return min(best, len(tokens) - 1)

    def remember(self, tokens: list[int], tenant: str) -> None:
        with self.lock:
            seen = self._seen.setdefault(tenant, [])
            seen.append(list(tokens))
            del seen[:-20]

    def embed(
        self,
        texts: Sequence[Sequence[int]],
        *,
        normalize: bool = True,
        dimensions: int | None = None,
        progress: p.Progress | None = None,
    ) -> p.Floats:
        """Counts of tokens, hashed into places."""
        if self.fail:
            raise errors.PlanError(self.fail)
        out = np.zeros((len(texts), dimensions or 64), np.float32)
        for i, ids in enumerate(texts):
            if len(ids) > self.info.context_length:
                raise errors.PromptTooLongError(len(ids), self.info.context_length)
            time.sleep(self.prefill_delay)
            if progress:
                progress("embedding", i, len(texts))
            for token in ids:
                out[i, token % out.shape[1]] += 1
        lengths = np.linalg.norm(out, axis=1, keepdims=True)
        return (out / lengths if normalize else out).astype(np.float32)

    def score(
        self, tokens: Sequence[int], *, top: int = 0, progress: p.Progress | None = None
    ) -> list[TokenScore]:
        """Each token is as unlikely as it is far into the text."""
        out = [TokenScore(tokens[0], float("nan"))]
        for i, token in enumerate(tokens[1:], 1):
            out.append(TokenScore(token, -0.5 * i, tuple((97 + k, -0.1 * (k + 1)) for k in range(top))))
        return out

    def rerank(
        self, query: str, documents: Sequence[str], *, progress: p.Progress | None = None
    ) -> list[float]:
        first, *others = self.embed([list(t.encode()) for t in (query, *documents)], progress=progress)
        return [float(first @ other) for other in others]

    def durations(self) -> Mapping[str, p.DurationHistogram]:
        return {"queue": p.DurationHistogram((0.1, 1.0), (3, 1, 2), 9.5)}

    def stats(self) -> Mapping[str, float]:
        return {
            "generations_live": self.live,
            "generations_ended_total": self.ended,
            "contexts_live": self.contexts,
        }

    def close(self) -> None:
        self.closed = True
