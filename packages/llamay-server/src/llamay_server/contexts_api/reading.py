"""The prompts of /v1/contexts, and their prefill into contexts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from llamay_models.errors import LlamayError
from llamay_server.chat.conversation import Conversation, common_prefix, render
from llamay_server.engine.blocking import in_thread, release
from llamay_server.http.errors import ApiError, invalid
from llamay_server.http.refusals import from_engine, prompt_too_long
from llamay_server.openai.messages import read_messages
from llamay_server.openai.tools import openai_choice, openai_tools
from llamay_server.pipeline.prompts import read_prompts

if TYPE_CHECKING:
    from pathlib import Path

    from llamay_server.chat.conversation import Message
    from llamay_server.contexts.registry import ContextWrite, NamedContext
    from llamay_server.contexts_api.schema import GenerateFromContext, PromptFields
    from llamay_server.engine.protocol import Model, Progress
    from llamay_server.http.exchange import Exchange
    from llamay_server.services import Services

T = TypeVar("T")


def given_tokens(data: PromptFields | GenerateFromContext, model: Model, *, first: bool) -> list[int] | None:
    """Return the ids of `prompt` or `tokens`, or None; `first` says whether nothing is before them."""
    given = [name for name in ("prompt", "tokens", "messages") if getattr(data, name) is not None]
    if len(given) > 1:
        raise invalid(
            f"{given[1]}: there is {given[0]} already; give one of prompt, tokens, messages", given[1]
        )
    if data.prompt is not None:
        ids = model.encode(data.prompt, add_special=first, parse_special=True)
        if not ids:
            raise invalid("prompt: it is empty", "prompt")
        return ids
    if data.tokens is not None:
        return read_prompts(list(data.tokens), model, "tokens")[0]
    return None


def read_conversation(
    data: PromptFields | GenerateFromContext, earlier: Sequence[Message] = ()
) -> Conversation:
    """Return the conversation of a body, behind earlier messages."""
    messages = [*earlier, *read_messages(data.messages or [])]
    parallel = getattr(data, "parallel_tool_calls", None)
    box = openai_choice(data.tool_choice, openai_tools(data.tools), parallel)
    ends_open = bool(messages) and messages[-1]["role"] == "assistant"
    wanted = getattr(data, "add_generation_prompt", None)
    return Conversation(messages, box, continue_final=ends_open and wanted is not True)


def check_length(tokens: int, model: Model) -> None:
    """Refuse a prompt that is longer than the model's context with a 413."""
    limit = model.info.context_length
    if tokens > limit:
        error = prompt_too_long(tokens, limit)
        raise ApiError("too_large", error.message, code=error.code, extra=error.extra, retry=False)


async def engine_work(work: Callable[[Progress], T], *, hide: Path | None = None) -> T:
    """Run blocking work of an engine in a thread. Its exceptions become `ApiError`s, except for OSErrors.

    `hide` is a file whose path is left out of the message.
    """
    try:
        return await in_thread(work)
    except ApiError:
        raise
    except Exception as e:
        # A refusal of the engine may be an OSError as well, as that of a snapshot of somebody else is.
        if isinstance(e, OSError) and not isinstance(e, LlamayError):
            raise
        raise from_engine(e, hide) from e


async def prefill_more(
    service: Services,
    named: NamedContext,
    write: ContextWrite,
    data: PromptFields | GenerateFromContext,
    model: Model,
    exchange: Exchange,
) -> tuple[int, int]:
    """Prefill the prompt of a body into the fork of a write; returns how many tokens are kept and computed."""
    given = given_tokens(data, model, first=False)
    held = list(write.context.tokens)
    conversation = None
    if given is not None:
        ids, keep = given, len(held)
    else:
        if data.messages is None:
            raise invalid("prompt: it is missing; give prompt, tokens or messages", "prompt")
        if named.messages is None:
            # Of a restored context, only the tokens are known: the new turns follow them.
            ids, keep = await asyncio.to_thread(_turns_alone, data, model, held)
        else:
            conversation = read_conversation(data, _messages_so_far(named, model))
            wanted = (await asyncio.to_thread(render, model, conversation)).prompt.tokens
            # Where all tokens are computed, the last one is computed again: its logits are needed to continue.
            keep = min(common_prefix(held, wanted), len(wanted) - 1)
            ids = wanted[keep:]
    check_length(keep + len(ids), model)
    service.contexts.check_room(exchange.owner, 0, keep + len(ids) - len(held))
    exchange.phase = "prefill"
    if 0 < keep < len(held):
        write.context.truncate(keep)
    if keep == 0 and held:
        tenant, whole = service.tenant(exchange), ids
        fresh = await engine_work(lambda progress: model.context(whole, tenant=tenant, progress=progress))
        release(write.context)
        write.context = fresh
    else:
        context, more = write.context, ids
        await engine_work(lambda progress: context.extend(more, progress=progress))
    if conversation is not None:
        write.messages, write.prompt_length = conversation.messages, keep + len(ids)
    return keep, len(ids)


def _messages_so_far(named: NamedContext, model: Model) -> list[Message]:
    """Return the messages that a context was made from, and the text that the model has generated after them."""
    messages = named.messages or []
    said = model.decode(list(named.context.tokens)[named.prompt_length :])
    eos = model.info.eos_token
    said = said.removesuffix(eos) if eos else said
    return [*messages, {"role": "assistant", "content": said}] if said.strip() else list(messages)


def _turns_alone(
    data: PromptFields | GenerateFromContext, model: Model, held: Sequence[int]
) -> tuple[list[int], int]:
    """Return the tokens of new turns after a conversation of known tokens alone, and how many of those are kept.

    The template writes a stand-in conversation twice, alone and with the new turns behind it: the tokens that only
    the second has are the tokens of the new turns.
    """
    stand_in = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    before = render(model, Conversation(stand_in, continue_final=True)).prompt.tokens
    after = render(model, read_conversation(data, stand_in)).prompt.tokens
    if after[: len(before)] != before or len(after) == len(before):
        raise invalid(
            "messages: this model's template cannot put turns behind a context; give prompt or tokens",
            "messages",
        )
    added = after[len(before) :]
    if len(added) > 1 and held[-1] == added[0]:
        return added[1:], len(held)
    ended = model.info.eos_token and held[-1:] == model.encode(
        model.info.eos_token, add_special=False, parse_special=True
    )
    return added, len(held) - bool(ended)
