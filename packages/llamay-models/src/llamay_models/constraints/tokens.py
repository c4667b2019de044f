"""A model's tokens in a compiler's form, made once."""

from __future__ import annotations

import threading
import weakref
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from llamay_models.constraints.interface import Compiler
    from llamay_models.tokenizer import Tokenizer

_lock = threading.Lock()
_vocabularies: weakref.WeakKeyDictionary[Tokenizer, dict[int, tuple[Compiler, Any]]] = (
    weakref.WeakKeyDictionary()
)


class TokenizedModel(Protocol):
    """A model, as its vocabulary is made."""

    @property
    def tokenizer(self) -> Any:
        """The `Tokenizer`; None in a model without one."""

    @property
    def vocab_size(self) -> int:
        """The number of tokens."""


def vocabulary(model: TokenizedModel, compiler: Compiler) -> Any:
    """Return a model's tokens as `compiler` takes them: for `llamay_grammar`, a `Vocabulary`.

    Made when it is first asked for (which takes a moment) and kept as long as the tokenizer, which models that share
    weights share: it remembers the masks of all grammars over it. Any thread may call.

    Raises:
        TypeError: for a value that is no model.
        ValueError: for a model without a tokenizer.
        InterfaceError: for a compiler of another version than this package was written for.

    """
    words = _tokenizer(model)
    size = model.vocab_size
    with _lock:
        known = _vocabularies.setdefault(words, {})
        if size not in known or known[size][0] is not compiler:
            known[size] = compiler, _make_vocabulary(words, size, compiler)
        return known[size][1]


def _make_vocabulary(words: Tokenizer, size: int, compiler: Compiler) -> Any:
    from llamay_models.interfaces import check
    from llamay_models.tokenizer import token_table

    if isinstance(compiler, ModuleType):
        check("llamay-models", compiler, {"vocabulary": (1, 0), "token_constraint": (1, 0)})
    table = token_table(words, size)
    return compiler.Vocabulary(table.tokens, special=table.special, end=table.end)


def _tokenizer(model: TokenizedModel) -> Tokenizer:
    if not hasattr(model, "tokenizer"):
        kind = "None" if model is None else f"a {type(model).__name__}"
        raise TypeError(f"model is {kind}; give a model, as llamay.load() returns it")
    if model.tokenizer is None:
        raise ValueError("this model has no tokenizer, so nothing can be said about its text")
    words: Tokenizer = model.tokenizer
    return words
