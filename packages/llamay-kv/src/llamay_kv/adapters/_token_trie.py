"""Sequences of tokens with a value each, found by their longest common prefix, however many there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

import numpy as np

V = TypeVar("V")


class _Node(Generic[V]):
    __slots__ = ("children", "edge", "newest", "parent", "value")

    def __init__(self, edge: np.ndarray, parent: _Node[V] | None) -> None:
        self.edge = edge  # the tokens from the parent to here
        self.parent = parent
        self.children: dict[int, _Node[V]] = {}
        self.value: tuple[V] | None = None
        self.newest: _Node[V] | None = None  # some node with a value at or below this one


class TokenTrie(Generic[V]):
    """A radix tree: an edge holds all tokens between two branches, and comparing them is one numpy operation."""

    def __init__(self) -> None:
        self._root: _Node[V] = _Node(np.empty(0, np.int32), None)
        self.n_values = 0

    def insert(self, tokens: np.ndarray, value: V) -> V | None:
        """Give the sequence a value; return the value that it had."""
        node, rest = self._root, tokens
        while len(rest):
            child = node.children.get(int(rest[0]))
            if child is None:
                child = _Node(rest.copy(), node)
                node.children[int(rest[0])] = child
            elif (same := _common(child.edge, rest)) < len(child.edge):
                child = self._split(child, same)
            node, rest = child, rest[len(child.edge) :]
        old, node.value = node.value, (value,)
        self.n_values += old is None
        above: _Node[V] | None = node
        while above is not None:
            above.newest, above = node, above.parent
        return old[0] if old else None

    def _split(self, child: _Node[V], at: int) -> _Node[V]:
        parent = child.parent
        assert parent is not None
        middle: _Node[V] = _Node(child.edge[:at], parent)
        parent.children[int(child.edge[0])] = middle
        child.edge, child.parent, middle.newest = child.edge[at:], middle, child.newest
        middle.children[int(child.edge[0])] = child
        return middle

    def remove(self, tokens: np.ndarray) -> V | None:
        """Take the sequence out; return its value, None if it had none."""
        node, length = self._descend(tokens)
        if length < len(tokens) or node.value is None or self._depth(node) != len(tokens):
            return None
        old, node.value = node.value[0], None
        self.n_values -= 1
        gone = node
        while node.parent is not None and node.value is None and not node.children:
            del node.parent.children[int(node.edge[0])]
            node = node.parent
        above: _Node[V] | None = node
        while above is not None:
            if above.newest is gone or above is node:
                below = (child.newest for child in above.children.values() if child.newest)
                above.newest = above if above.value is not None else next(below, None)
            above = above.parent
        if node.parent is not None and node.value is None and len(node.children) == 1:
            self._merge(node)
        return old

    def _merge(self, node: _Node[V]) -> None:
        (child,) = node.children.values()
        assert node.parent is not None
        child.edge, child.parent = np.concatenate([node.edge, child.edge]), node.parent
        node.parent.children[int(child.edge[0])] = child

    def longest_common(self, tokens: np.ndarray) -> tuple[int, V] | None:
        """Return the length of the longest prefix that any sequence shares, and the value of one that shares it."""
        node, length = self._descend(tokens)
        if length == 0 or node.newest is None or node.newest.value is None:
            return None
        return length, node.newest.value[0]

    def longest_whole(self, tokens: np.ndarray) -> tuple[int, V] | None:
        """Return the longest sequence that is, whole, a prefix of the tokens: its length and its value."""
        best, node, at = None, self._root, 0
        while at < len(tokens):
            child = node.children.get(int(tokens[at]))
            if child is None or _common(child.edge, tokens[at:]) < len(child.edge):
                break
            node, at = child, at + len(child.edge)
            if node.value is not None:
                best = at, node.value[0]
        return best

    def _descend(self, tokens: np.ndarray) -> tuple[_Node[V], int]:
        """Return the last node of which any token matches, and how many tokens match."""
        node, at = self._root, 0
        while at < len(tokens):
            child = node.children.get(int(tokens[at]))
            if child is None:
                break
            same = _common(child.edge, tokens[at:])
            node, at = child, at + same
            if same < len(child.edge):
                break
        return node, at

    @staticmethod
    def _depth(node: _Node[V]) -> int:
        depth, above = 0, node
        while above.parent is not None:
            depth, above = depth + len(above.edge), above.parent
        return depth

    def values(self) -> Iterator[V]:
        """Yield all values."""
        stack = [self._root]
        while stack:
            node = stack.pop()
            if node.value is not None:
                yield node.value[0]
            stack.extend(node.children.values())


def _common(a: np.ndarray, b: np.ndarray) -> int:
    n = min(len(a), len(b))
    if n == 0 or a[0] != b[0]:
        return 0
    different = a[:n] != b[:n]
    first = int(different.argmax())
    return first if different[first] else n
