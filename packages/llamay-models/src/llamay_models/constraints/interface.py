"""The protocols of a grammar compiler, and the compiler that the process uses."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from llamay_models.errors import InterfaceError

if TYPE_CHECKING:
    from llamay_models.answers import Types
    from llamay_models.engine import TokenConstraint


Mode = Literal["exact", "approximate"]


class Compiled(Protocol):
    """A compiled grammar, such as `llamay_grammar.Grammar`."""

    warnings: tuple[str, ...]
    """The parts that it does not enforce; empty unless it was allowed to leave some out."""

    def matcher(self) -> TokenConstraint:
        """Return a constraint at the beginning of a text."""


class Compiler(Hashable, Protocol):
    """Compiles grammars, and knows the formats of calls. The module `llamay_grammar` is a compiler."""

    def Vocabulary(  # noqa: N802
        self, tokens: Sequence[bytes], /, *, special: Mapping[int, str], end: Sequence[int]
    ) -> Any:
        """Return the tokens of a model in the compiler's form; see `llamay_models.tokenizer.token_table`."""

    def Reasoning(self, open: str, close: str, begun: bool, /) -> Any:  # noqa: A002, N802
        """Return the marks around the reasoning that a model may write before the constrained text."""

    def compile_json_schema(
        self,
        schema: Mapping[str, Any] | bool | str,
        vocabulary: Any,
        /,
        *,
        mode: Mode = ...,
        whitespace: Literal["flexible", "spaced", "compact"] = ...,
        property_order: Literal["any", "schema"] = ...,
        canonical_escapes: bool = ...,
        reasoning: Any = ...,
    ) -> Any:
        """Compile a JSON Schema."""

    def compile_regex(self, pattern: str, vocabulary: Any, /, *, whole: bool) -> Any:
        """Compile a regular expression (ECMA-262)."""

    def compile_gbnf(self, grammar: str, vocabulary: Any, /) -> Any:
        """Compile a grammar in llama.cpp's GBNF."""

    def compile_tools(
        self,
        tools: Sequence[Mapping[str, Any]],
        vocabulary: Any,
        /,
        *,
        format: str = ...,  # noqa: A002
        choice: str = ...,
        parallel: bool = ...,
        answer: Any = ...,
        reasoning: Any = ...,
        mode: Mode = ...,
        whitespace: Literal["flexible", "spaced", "compact"] = ...,
        property_order: Literal["any", "schema"] = ...,
        canonical_escapes: bool = ...,
    ) -> Any:
        """Compile calls of tools in a format."""

    def tool_formats(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the formats of calls by name."""

    def argument_types(self, schema: Any, /) -> Types:
        """Return which JSON types the members of an object under a JSON schema may have."""

    def read_argument(self, text: str, types: Iterable[str], /) -> Any:
        """Return the value of an argument that stands between tags."""


_find: Callable[[], Compiler] | None = None


def use_compiler(find: Callable[[], Compiler]) -> None:
    """Say which compiler `Model.constraint` and `Context.generate(schema=…)` use; called when one is first needed."""
    global _find
    _find = find


def compiler() -> Compiler:
    """Return the compiler that `use_compiler` named. Raises InterfaceError where none was."""
    if _find is None:
        raise InterfaceError(
            "llamay_models compiles no schemas by itself: import llamay, which brings llamay_grammar, "
            "or give generate a constraint"
        )
    return _find()
