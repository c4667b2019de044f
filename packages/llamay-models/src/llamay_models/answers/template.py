"""The properties of answers that a chat template shows: the format of calls, and the marks around reasoning.

A GGUF file names neither, but the turns of the assistant in the templates of a family show them: the marks here are
those of the models' own templates, as their files and llama.cpp's `models/templates` have them.
"""

# ruff: noqa: RUF001 - DeepSeek's marks have full-width bars
from __future__ import annotations

import functools

from .envelopes import envelope
from .formats import Formats

# Texts in the template of a model that speaks a format, and texts that are not, the most specific first.
_MARKS: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (("[TOOL_CALLS]", "[ARGS]"), (), "mistral-v11"),
    (("[TOOL_CALLS]",), (), "mistral"),
    (("<｜tool▁calls▁begin｜>", "```json"), (), "deepseek"),
    (("<｜tool▁calls▁begin｜>",), (), "deepseek-v3.1"),
    (("<|channel|>", "functions."), (), "gpt-oss"),
    (("<|tool_calls_section_begin|>",), (), "kimi-k2"),
    (("<|tool_call>call:", "<tool_call|>"), (), "gemma-4"),
    ((":opensource", "<tool_sep"), (), "hunyuan-3"),
    (("<|im_start|>", "List of tools: "), (), "lfm2"),
    (("<|START_ACTION|>",), (), "command-r7b"),
    (("<TOOLCALL>",), (), "nemotron-v2"),
    (("<tool_calls>[",), (), "apriel"),
    (("<tool_calls>\\n",), (), "minimax-m1"),
    (("<|tool|>", "<|/tool|>"), (), "phi-4-mini"),
    (("<|tool_call|>",), (), "granite-3.3"),
    (("<|function_call|>",), (), "gigachat-3.1"),
    (("<|tool_call:begin|>",), (), "solar-open"),
    (("<|tools_prefix|>",), (), "apertus"),
    (("<minimax:tool_call>",), (), "minimax-m2"),
    (("<seed:tool_call>",), (), "seed-oss"),
    (("｜DSML｜", "function_calls"), (), "deepseek-v3.2"),
    (("｜DSML｜",), (), "deepseek-v4"),
    (("<tool_call>", "</arg_key>\n"), (), "glm-4.5"),
    (("<tool_call>", "</arg_key>\\n"), (), "glm-4.5"),
    (("<tool_call>", "</arg_key>"), (), "glm-4.7"),
    (("<tool_call>", "<function=", "<parameter="), (), "qwen3-coder"),
    (("<tool_call>",), (), "hermes"),
    (("<function=",), ("<parameter=",), "functionary"),
    ((">>>all",), (), "functionary-v3.2"),
    (("```tool_call",), (), "gemma"),
    (("<|start_header_id|>", '"parameters": '), (), "llama3"),
)
DEFAULT = "hermes"
_REASONING_MARKS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)


@functools.lru_cache(maxsize=64)
def format_of(template: str | None) -> str:
    """Return the name of the format that a chat template speaks: Hermes' for one that writes no calls."""
    if not writes_calls(template):
        return DEFAULT
    assert template is not None
    return next(
        (
            name
            for marks, others, name in _MARKS
            if all(mark in template for mark in marks) and not any(mark in template for mark in others)
        ),
        DEFAULT,
    )


def writes_calls(template: str | None) -> bool:
    """Return whether a template has a place for calls in the turns of the assistant, or at least for tools."""
    return template is not None and any(
        word in template.lower() for word in ("tools", "tool_calls", "toolcalls")
    )


@functools.lru_cache(maxsize=64)
def reasoning_of(template: str | None, formats: Formats) -> tuple[str, str] | None:
    """Return the marks around the reasoning of a model with this template; None for a model without reasoning."""
    if template is None:
        return None
    if (marks := envelope(format_of(template), formats).reasoning) is not None:
        return marks
    return next((marks for marks in _REASONING_MARKS if marks[0] in template), None)


def begins_in_reasoning(prompt: str, marks: tuple[str, str] | None) -> bool:
    """Return whether a prompt (its end suffices) has already opened the reasoning of the answer."""
    return marks is not None and prompt.rstrip().endswith(marks[0].rstrip())
