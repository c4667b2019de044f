"""The environment in which templates run: Jinja's immutable sandbox, with traced strings and with limits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from datetime import datetime
from types import BuiltinMethodType, MethodType
from typing import Any, NoReturn

from jinja2 import Undefined, nodes
from jinja2.exceptions import TemplateError
from jinja2.filters import FILTERS
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Namespace
from markupsafe import soft_str

from ..errors import ChatTemplateError
from .compiler import Generation, TracingCodeGenerator, count_steps
from .limits import MAX_NUMBER_BITS, Budget, check_characters, check_items, check_widths
from .lists import OwnList
from .traced import GROWING, Traced, concat

_LARGEST_ARGUMENT = 100_000
# Bytes have all the ways to grow that strings have, and no template needs any.
_REFUSED_METHODS = ("encode", "to_bytes", "translate")
_UNSAFE_FILTERS = ("attr", "pprint", "random", "urlize", "xmlattr")

#: The budget of the rendering that runs in this thread or task.
budget: ContextVar[Budget] = ContextVar("budget")


class RefusedError(TemplateError):
    """A template called raise_exception: the conversation is not one that it can render."""


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """Settings and helpers as Hugging Face's `apply_chat_template` has them."""

    code_generator_class = TracingCodeGenerator
    concat = staticmethod(concat)
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            extensions=["jinja2.ext.loopcontrols", Generation],
        )
        for name in _UNSAFE_FILTERS:
            del self.filters[name]
        self.filters = {name: _guarded(f) for name, f in self.filters.items()}
        self.filters |= _FILTERS
        del self.globals["lipsum"]
        self.globals["namespace"] = _Namespace
        self.globals["raise_exception"] = raise_exception
        self.globals["strftime_now"] = strftime_now

    # -- called by compiled templates

    @staticmethod
    def literal(text: str) -> Traced:
        """Return text that stands in the template."""
        return Traced.trusted(text)

    @staticmethod
    def text(value: Any) -> str:
        """Return the text that `{{ value }}` prints."""
        if isinstance(value, str):
            return value
        _check_number(value)
        return str(value)

    @classmethod
    def concat_values(cls, values: tuple[Any, ...]) -> Traced:
        """Return `a ~ b ~ …`."""
        return concat(cls.text(v) for v in values)

    @staticmethod
    def container(value: Any) -> Any:
        """Return a list, tuple or dict that the template made, if it is not too large."""
        return budget.get().container(value)

    @staticmethod
    def own(value: list[Any]) -> OwnList:
        """Return a list that the template wrote, which it may change, if it is not too large."""
        return budget.get().own(value)

    @property
    def step(self) -> None:
        """Count a step of the rendering."""
        budget.get().step()

    # -- Jinja's hooks

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        count_steps(template)
        return template

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Check the size of a value before it grows."""
        if operator == "%" and isinstance(left, str):
            return Traced(left) % right if not isinstance(left, Traced) else left % right
        if operator == "**":
            _check_power(left, right)
        elif isinstance(left, str) and isinstance(right, str) and operator == "+":
            return concat((left, right))
        elif operator == "*":
            _check_product(left, right)
        elif _is_list(left) and _is_list(right):
            check_items(len(left) + len(right))
        result = super().call_binop(context, operator, left, right)
        _check_number(result)
        if isinstance(result, list):
            return self.own(result)
        return self.container(result) if _is_list(result) else result

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Let templates change lists of their own."""
        if isinstance(obj, OwnList) and attr in OwnList.CHANGES:
            return True
        return super().is_safe_attribute(obj, attr, value)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Count calls, and give plain strings the checked methods of traced ones."""
        budget.get().step()
        owner = getattr(obj, "__self__", None)
        if isinstance(obj, BuiltinMethodType) and obj.__name__ in _REFUSED_METHODS:
            kind = type(owner).__mro__[-2].__name__
            raise ChatTemplateError(f"the chat template calls {kind}.{obj.__name__}, which is not allowed")
        if isinstance(obj, BuiltinMethodType) and isinstance(owner, str) and obj.__name__ in GROWING:
            obj = getattr(Traced(owner), obj.__name__)
        if isinstance(obj, Macro):  # which has them again, as `varargs` and `kwargs`
            self.container(args)
            self.container(kwargs)
        result = super().call(context, obj, *args, **kwargs)
        return self.container(result) if isinstance(result, (list, tuple, dict)) else result

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return a tracing, checked stand-in for str.format and str.format_map."""
        if not isinstance(value, (MethodType, BuiltinMethodType)) or value.__name__ not in (
            "format",
            "format_map",
        ):
            return None
        owner: Any = value.__self__
        if not isinstance(owner, str):
            return None
        text = owner if isinstance(owner, Traced) else Traced(owner)
        formatter = _CheckedFormatter(self)
        if value.__name__ == "format":
            return lambda *args, **kwargs: text.format_with(formatter, args, kwargs)
        return lambda mapping: text.format_with(formatter, (), mapping)


class _Namespace(Namespace):
    """A namespace whose members are not shown: the text of namespaces that hold each other would have no end."""

    def __repr__(self) -> str:
        return "<Namespace>"


class _CheckedFormatter(SandboxedFormatter):
    def format_field(self, value: Any, format_spec: str) -> Any:
        check_widths(format_spec)
        return super().format_field(value, format_spec)


# -- limits on operators


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _check_number(value: Any) -> None:
    if isinstance(value, int) and value.bit_length() > MAX_NUMBER_BITS:
        raise ChatTemplateError(f"the chat template computes a number of more than {MAX_NUMBER_BITS} bits")


def _check_power(base: Any, exponent: Any) -> None:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > MAX_NUMBER_BITS:
        raise ChatTemplateError(f"the chat template computes a number of more than {MAX_NUMBER_BITS} bits")


def _check_product(left: Any, right: Any) -> None:
    for value, count in ((left, right), (right, left)):
        if isinstance(count, int) and isinstance(value, str):
            check_characters(len(value) * count)
        elif isinstance(count, int) and _is_list(value):
            check_items(len(value) * count)


# -- filters


def _guarded(filter_: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a filter of Jinja's: no huge numbers go in, nothing huge comes out."""

    def guarded(*args: Any, **kwargs: Any) -> Any:
        budget.get().step()
        for value in (*args, *kwargs.values()):
            if isinstance(value, int) and abs(value) > _LARGEST_ARGUMENT and filter_ not in _NUMERIC:
                raise ChatTemplateError(
                    f"the chat template passes {value} to the filter '{filter_.__name__}'"
                )
        result = filter_(*args, **kwargs)
        if isinstance(result, str):
            check_characters(len(result))
        elif isinstance(result, Iterator):
            return budget.get().counted(result)
        return budget.get().container(result) if isinstance(result, (list, tuple, dict)) else result

    for name in ("jinja_pass_arg", "jinja_async_variant"):
        if hasattr(filter_, name):
            setattr(guarded, name, getattr(filter_, name))
    return guarded


_NUMERIC = {
    FILTERS[name] for name in ("abs", "int", "float", "round", "string", "default", "d", "max", "min", "sum")
}


def _replace(value: Any, old: str, new: str, count: int | None = None) -> str:
    text = soft_str(value)
    text = text if isinstance(text, Traced) else Traced(text)
    return text.replace(soft_str(old), soft_str(new), -1 if count is None else count)


def _join(value: Any, d: str = "", attribute: str | int | None = None) -> str:
    items = list(value)
    check_items(len(items))
    if attribute is not None:
        items = [_attribute(item, attribute) for item in items]
    separator = d if isinstance(d, Traced) else Traced(d)
    return separator.join(ChatEnvironment.text(i) for i in items)


def _attribute(item: Any, name: str | int) -> Any:
    if isinstance(item, Mapping) and name in item:
        return item[name]
    raise ChatTemplateError(f"the chat template joins by '{name}', which an item lacks")


def _indent(value: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    text = soft_str(value)
    text = text if isinstance(text, Traced) else Traced(text)
    if not isinstance(width, str):
        check_characters(width)
        width = Traced.trusted(" " * width)
    lines = (text + "\n").splitlines()
    check_characters(len(text) + len(lines) * len(width))
    joined: list[str] = []
    for i, line in enumerate(lines):
        if i:
            joined.append(Traced.trusted("\n"))
        if (i or first) and (line or blank):
            joined.append(width)
        joined.append(line)
    return concat(joined)


def _format(value: str, *args: Any, **kwargs: Any) -> str:
    if args and kwargs:
        raise ChatTemplateError("the filter 'format' takes positional or keyword arguments, not both")
    return Traced(value) % (kwargs or args) if not isinstance(value, Traced) else value % (kwargs or args)


def _trim(value: Any, chars: str | None = None) -> str:
    return soft_str(value).strip(chars)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return a value as plain JSON: Hugging Face defines the filter so, and nothing is escaped for HTML."""
    if isinstance(indent, int):
        indent = max(0, min(indent, 16))
    elif isinstance(indent, str) and len(indent) > 16:
        raise ChatTemplateError("the chat template indents JSON by more than 16 characters")
    if isinstance(value, Undefined):
        raise ChatTemplateError("the chat template writes an undefined value as JSON")
    try:
        text = json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
            default=_listed,
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise ChatTemplateError(f"the chat template writes something as JSON that is not: {error}") from None
    check_characters(len(text))
    return text


def _listed(value: Any) -> list[Any]:
    """Return the result of `map` and `select`, which templates for other engines put straight into `tojson`."""
    if isinstance(value, Iterator):
        return list(value)
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _safe(value: Any) -> Any:
    return value  # nothing is escaped, so nothing needs to be marked as escaped


def _center(value: str, width: int = 80) -> str:
    check_characters(width)
    return soft_str(value).center(width)


_FILTERS: dict[str, Callable[..., Any]] = {
    "replace": _replace,
    "join": _join,
    "indent": _indent,
    "format": _format,
    "trim": _trim,
    "tojson": _tojson,
    "safe": _safe,
    "center": _center,
}


# -- called by templates


def raise_exception(message: str) -> NoReturn:
    """Refuse the conversation."""
    raise RefusedError(str.__str__(str(message)[:1000]))


def strftime_now(format: str) -> str:  # noqa: A002 - the name that templates use
    """Return the local time in a format of strftime."""
    check_widths(format)
    if len(format) > 200:
        raise ChatTemplateError("the chat template formats the time with more than 200 characters")
    return datetime.now().astimezone().strftime(format)
