"""Ollama's templates are Go's text/template; here they become the Jinja that the engine's sandbox runs.

It covers the parts that templates of models use: fields, variables, if, range, with, break, continue, comparisons,
and, or, not, len, slice, index, json, print, printf. Anything else is refused by name, never skipped. Both kinds of
template are known: those that go over `.Messages`, and the older ones that are run once for each turn with `.System`,
`.Prompt` and `.Response`.

The language: https://pkg.go.dev/text/template. The data that Ollama gives to a template: its template/template.go.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import ChatTemplateError

_ACTION = re.compile(
    r"\{\{(?P<left>-(?=\s))?\s*(?P<comment>/\*.*?\*/)?"
    r"(?P<body>(?:\"(?:\\.|[^\"\\])*\"|`[^`]*`|'(?:\\.|[^'\\])*'|(?!\}\}).)*?)(?P<right>(?<=\s)-)?\}\}",
    re.DOTALL,
)
_WORD = re.compile(
    r"\s*(?:(?P<text>\"(?:\\.|[^\"\\])*\")|`(?P<raw>[^`]*)`|(?P<number>-?\d+(?:\.\d+)?)"
    r"|(?P<field>(?:\$[A-Za-z_]\w*|\$)?(?:\.[A-Za-z_]\w*)+|\$[A-Za-z_]\w*|\$|\.)"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<op>:=|=|\(|\)|\||,))"
)
_GO = re.compile(
    r"\{\{-?\s*(?:/\*|range\b(?!\()|(?:if|with)\s|(?:else|end)\s*[-}]|else\s+if\s|(?:template|define|block)\s+[\"`]"
    r"|\$|\.[A-Z]|\.\s*[-|}]|(?!not\b)[a-z]\w*\s+[\"`$.])"
)
_COMPARISONS = {"ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_ROOT = {
    "Messages": "messages",
    "Tools": "(tools or [])",
    "Suffix": '""',
    "Think": "(enable_thinking or false)",
}
_ROOT |= {"ThinkLevel": '(reasoning_effort or "")', "IsThinkSet": "(enable_thinking is defined)"}
_FIELDS = {"Thinking": "reasoning_content", "ToolName": "name", "ID": "id", "ToolCallID": "tool_call_id"}
_OBJECTS = {"Tools", "ToolCalls", "Function", "Arguments", "Parameters", "Properties", "Required", "Enum"}
_MAPS = {"Arguments", "Properties"}
_MAX = 128 << 10
_SPACE = " \t\r\n"

# The turns of an older template: it is run for each, and of the last run everything after the answer is left out.
_TURNS = (
    "{%- set g = namespace(System='', Prompt='', Response='') -%}{%- for m in messages -%}"
    "{%- if m.role == 'system' -%}{%- if g.Prompt or g.Response -%}{{ turn(g.System, g.Prompt, g.Response) }}"
    "{%- set g.Prompt = '' -%}{%- set g.Response = '' -%}{%- endif -%}{%- set g.System = m.content or '' -%}"
    "{%- elif m.role == 'assistant' -%}{%- set g.Response = m.content or '' -%}"
    "{%- else -%}{%- if g.Response -%}{{ turn(g.System, g.Prompt, g.Response) }}{%- set g.System = '' -%}"
    "{%- set g.Response = '' -%}{%- endif -%}{%- set g.Prompt = m.content or '' -%}{%- endif -%}{%- endfor -%}"
    "{{ last(g.System, g.Prompt, g.Response) }}"
)
_SYSTEM = (
    "{%- set v = namespace(System='') -%}{%- for m in messages if m.role == 'system' -%}"
    "{%- set v.System = (v.System ~ '\\n\\n' ~ m.content) if v.System else m.content -%}{%- endfor -%}"
)


def as_jinja(source: str) -> str:
    """Return the Jinja of a template of either kind. `ChatTemplateError` names a line that cannot be translated."""
    return to_jinja(source) if is_go_template(source) else source


def is_go_template(source: str) -> bool:
    """Return whether a template is Go's and not Jinja: an action begins with a field, a variable or a word of Go's."""
    return bool(_GO.search(source))


def to_jinja(source: str) -> str:
    """Return the Jinja template with the output of a Go template. Raises `ChatTemplateError`."""
    if len(source) > _MAX:
        raise _refused(f"it is longer than {_MAX} characters")
    pieces = _split(source)
    uses = {name for piece in pieces if piece.action for name in re.findall(r"\.([A-Z]\w*)", piece.text)}
    if "Messages" in uses:
        return _SYSTEM + _Writer(pieces, legacy=False).write()
    whole = _Writer(pieces, legacy=True).write()
    cut = _Writer(pieces, legacy=True, cut=True).write()
    arguments = "(System, Prompt, Response)"
    return (
        "{%- set v = namespace() -%}"
        f"{{%- macro turn{arguments} -%}}{whole}{{%- endmacro -%}}"
        f"{{%- macro last{arguments} -%}}{cut}{{%- endmacro -%}}{_TURNS}"
    )


def _refused(text: str) -> ChatTemplateError:
    return ChatTemplateError(f"this Go template cannot be used: {text}")


class _Piece(NamedTuple):
    """Text, or the content of braces, and the line where it begins."""

    text: str
    action: bool
    line: int


def _split(source: str) -> list[_Piece]:
    """Return a template in pieces, white space trimmed as its dashes say."""
    pieces: list[_Piece] = []
    at, trim = 0, False
    for match in _ACTION.finditer(source):
        text = source[at : match.start()]
        if "{{" in text:
            raise _refused(f"line {_line(source, source.index('{{', at))}: an action is not closed")
        text = text.lstrip(_SPACE) if trim else text
        text = text.rstrip(_SPACE) if match["left"] else text
        if text:
            pieces.append(_Piece(text, False, _line(source, at)))
        body = match["body"].strip()
        if body and match["comment"]:
            raise _refused(f"line {_line(source, match.start())}: a comment must stand alone")
        if body:
            pieces.append(_Piece(body, True, _line(source, match.start())))
        at, trim = match.end(), match["right"] is not None
    rest = source[at:]
    if "{{" in rest:
        raise _refused(f"line {_line(source, source.index('{{', at))}: an action is not closed")
    if rest := rest.lstrip(_SPACE) if trim else rest:
        pieces.append(_Piece(rest, False, _line(source, at)))
    return pieces


def _line(source: str, at: int) -> int:
    return source.count("\n", 0, at) + 1


@dataclass
class _Block:
    """An open if, range or with: how it ends, the dot inside, and the variables that it declared."""

    kind: str
    ends: int
    dot: _Value
    names: dict[str, _Value] = field(default_factory=dict)


@dataclass(frozen=True)
class _Value:
    """A Jinja expression; `name` is the field it came from, which tells objects from texts."""

    code: str
    name: str = ""
    root: bool = False
    literal: bool = False


class _Writer:
    """Writes one template."""

    def __init__(self, pieces: list[_Piece], *, legacy: bool, cut: bool = False) -> None:
        self.pieces, self.legacy, self.cut = pieces, legacy, cut
        self.blocks = [_Block("", 0, _Value("", root=True))]
        self.out: list[str] = []
        self.line = 1
        self.made = 0
        self.silent = False

    def write(self) -> str:
        """Return the whole template."""
        for piece in self.pieces:
            self.line = piece.line
            if piece.action:
                self._action(piece.text)
            elif not self.silent:
                self.out.append(f"{{{{ {_quoted(piece.text)} }}}}")
        if len(self.blocks) > 1:
            raise self._error(f"{self.blocks[-1].kind} has no end")
        return "".join(self.out)

    def _error(self, text: str) -> ChatTemplateError:
        return _refused(f"line {self.line}: {text}")

    def _action(self, text: str) -> None:
        words = self._words(text)
        match words[0]:
            case ("name", "if" | "with" | "range" as kind):
                self._open(kind, words[1:])
            case ("name", "else"):
                self._else(words[1:])
            case ("name", "end"):
                if len(self.blocks) == 1 or len(words) > 1:
                    raise self._error("this end ends nothing")
                block = self.blocks.pop()
                ends = {"range": "{%- endfor -%}"}.get(block.kind, "{%- endif -%}")
                self.out.append(ends * block.ends)
            case ("name", "break" | "continue" as word):
                if not any(block.kind == "range" for block in self.blocks):
                    raise self._error(f"{word} outside of range")
                if not self.silent:
                    self.out.append(f"{{%- {word} -%}}")
            case ("name", "define" | "template" | "block" as word):
                raise self._error(f"{word} is not supported: write the template as one piece")
            case _:
                self._pipeline_action(words)

    def _pipeline_action(self, words: list[tuple[str, str]]) -> None:
        if len(words) > 2 and words[0][0] == "field" and words[1] in (("op", ":="), ("op", "=")):
            name = words[0][1]
            value = self._pipeline(words[2:])
            if words[1][1] == ":=":
                self.made += 1
                self.blocks[-1].names[name] = _Value(f"v.x{self.made}", value.name)
            known = self._variable(name)
            if not self.silent:
                self.out.append(f"{{%- set {known.code} = {value.code} -%}}")
            return
        value = self._pipeline(words)
        if self.silent:
            return
        self.out.append(f"{{{{ {_printed(value)} }}}}")
        if self.cut and value.code == "Response":
            # Everything after the answer is dropped, but the blocks that were opened before it are closed.
            self.silent = True

    def _open(self, kind: str, words: list[tuple[str, str]]) -> None:
        names: list[str] = []
        if kind == "range" and ("op", ":=") in words:
            at = words.index(("op", ":="))
            names = [word for what, word in words[:at] if what == "field"]
            words = words[at + 1 :]
        value = self._pipeline(words)
        block = _Block(kind, 1, self.blocks[-1].dot)
        if kind != "range":
            if kind == "with":
                block.dot = value
            self.out.append(f"{{%- if {value.code} -%}}")
            self.blocks.append(block)
            return
        self.made += 1
        item, key = f"m{self.made}", f"k{self.made}"
        block.dot = _Value(item, {"Tools": "Function", "ToolCalls": "Function"}.get(value.name, ""))
        of_map = value.name in _MAPS
        if of_map:
            self.out.append(f"{{%- for {key}, {item} in ({value.code} or {{}}).items() -%}}")
        else:
            self.out.append(f"{{%- for {item} in ({value.code} or []) -%}}")
        self.blocks.append(block)
        # A variable lives in the namespace, since a loop inside this one has a `loop` of its own.
        sources = [block.dot] if len(names) == 1 else [_Value(key if of_map else "loop.index0"), block.dot]
        for name, source in zip(names, sources, strict=False):
            if name != "$_":
                self.made += 1
                block.names[name] = _Value(f"v.x{self.made}", source.name)
                self.out.append(f"{{%- set v.x{self.made} = {source.code} -%}}")

    def _else(self, words: list[tuple[str, str]]) -> None:
        if len(self.blocks) == 1:
            raise self._error("this else belongs to nothing")
        block = self.blocks[-1]
        block.dot, block.names = self.blocks[-2].dot, {}
        if not words:
            self.out.append("{%- else -%}")
            return
        if words[0] not in (("name", "if"), ("name", "with")) or block.kind == "range":
            raise self._error("else is followed by nothing, or by if")
        value = self._pipeline(words[1:])
        if words[0][1] == "with":
            block.dot = value
        self.out.append(f"{{%- elif {value.code} -%}}")

    def _variable(self, name: str) -> _Value:
        for block in reversed(self.blocks):
            if name in block.names:
                return block.names[name]
        raise self._error(f"there is no variable {name}")

    def _words(self, text: str) -> list[tuple[str, str]]:
        words, at = [], 0
        while at < len(text) and not text[at:].isspace():
            match = _WORD.match(text, at)
            if match is None or match.lastgroup is None:
                raise self._error(f"{text[at:][:40]!r} is not understood")
            words.append((match.lastgroup, match[match.lastgroup]))
            # `(x).Name`: a field that follows at once belongs to the parentheses.
            if match[match.lastgroup] == ")" and text[match.end() : match.end() + 1] == ".":
                more = re.match(r"(?:\.[A-Za-z_]\w*)+", text[match.end() :])
                if more is None:
                    raise self._error(f"{text[at:][:40]!r} is not understood")
                words.append(("of", more[0]))
                at = match.end() + more.end()
                continue
            at = match.end()
        if not words:
            raise self._error("an action is empty")
        return words

    def _pipeline(self, words: list[tuple[str, str]]) -> _Value:
        """Return the value of commands joined by |, each of which gets the one before as its last argument."""
        value: _Value | None = None
        for command in self._parts(words):
            value = self._command(command, value)
        assert value is not None
        return value

    def _parts(self, words: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
        parts: list[list[tuple[str, str]]] = [[]]
        depth = 0
        for word in words:
            depth += (word == ("op", "(")) - (word == ("op", ")"))
            if word == ("op", "|") and depth == 0:
                parts.append([])
            else:
                parts[-1].append(word)
        if depth or not all(parts):
            raise self._error("parentheses or | do not fit together")
        return parts

    def _command(self, words: list[tuple[str, str]], last: _Value | None) -> _Value:
        if words[0][0] != "name" or words[0][1] in ("true", "false", "nil"):
            value, used = self._operand(words)
            if used != len(words) or last is not None:
                raise self._error("a value takes no arguments")
            return value
        arguments: list[_Value] = []
        at = 1
        while at < len(words):
            value, used = self._operand(words[at:])
            arguments.append(value)
            at += used
        if last is not None:
            arguments.append(last)
        return self._call(words[0][1], arguments)

    def _operand(self, words: list[tuple[str, str]]) -> tuple[_Value, int]:
        kind, word = words[0]
        match kind:
            case "text":
                try:
                    return _Value(_quoted(json.loads(word, strict=False)), literal=True), 1
                except ValueError:
                    raise self._error(f"the string {word[:40]} is not understood") from None
            case "raw":
                return _Value(_quoted(word), literal=True), 1
            case "number":
                return _Value(word, literal=True), 1
            case "field":
                return self._field(word), 1
            case "name" if word in ("true", "false", "nil"):
                return _Value({"nil": "none"}.get(word, word), literal=True), 1
            case "name":
                return self._call(word, []), 1
            case "op" if word == "(":
                at = self._closing(words)
                value = self._pipeline(words[1:at])
                value = _Value(f"({value.code})", value.name)
                if at + 1 < len(words) and words[at + 1][0] == "of":
                    return self._of(value, words[at + 1][1].split(".")[1:]), at + 2
                return value, at + 1
        raise self._error(f"{word!r} is not expected here")

    def _closing(self, words: list[tuple[str, str]]) -> int:
        """Return the index of the parenthesis that closes the one with which the words begin."""
        depth = 0
        for at, each in enumerate(words):
            depth += (each == ("op", "(")) - (each == ("op", ")"))
            if depth == 0:
                return at
        raise self._error("a parenthesis is not closed")

    def _field(self, word: str) -> _Value:
        head, *names = word.split(".")
        names = [name for name in names if name]
        if head == "$":
            value = self.blocks[0].dot
        elif head:
            value = self._variable(head)
        else:
            value = self.blocks[-1].dot
        if not names and value.root:
            raise self._error("the dot as a whole is not supported here; name a field")
        return self._of(value, names)

    def _of(self, value: _Value, names: list[str]) -> _Value:
        for name in names:
            if value.root:
                value = self._top(name)
                continue
            code = _FIELDS.get(name) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
            value = _Value(f"{value.code}[{_quoted(code)}]", name)
        return value

    def _top(self, name: str) -> _Value:
        if self.legacy and name in ("System", "Prompt", "Response"):
            return _Value(name, name)
        if name == "System":
            return _Value("v.System", name)
        if name in ("Response", "Prompt"):
            return _Value('""', name)
        if name in _ROOT:
            return _Value(_ROOT[name], name)
        raise self._error(f".{name} is not a field that templates have")

    def _call(self, name: str, arguments: list[_Value]) -> _Value:
        codes = [argument.code for argument in arguments]
        counts = {
            "not": (1, 1),
            "len": (1, 1),
            "json": (1, 1),
            "index": (2, 9),
            "slice": (1, 3),
            "printf": (1, 99),
        }
        counts |= {
            "eq": (2, 99),
            "and": (1, 99),
            "or": (1, 99),
            "currentDate": (0, 0),
            **dict.fromkeys(_COMPARISONS, (2, 2)),
        }
        low, high = counts.get(name, (0, 99))
        if not low <= len(codes) <= high:
            raise self._error(f"{name} does not take {len(codes)} arguments")
        match name:
            case "eq":
                code = " or ".join(f"{codes[0]} == {other}" for other in codes[1:])
            case "and" | "or":
                code = f" {name} ".join(codes)
            case "not":
                code = f"not {codes[0]}"
            case "len":
                code = f"({codes[0]} or [])|length"
            case "index":
                code = codes[0] + "".join(f"[{each}]" for each in codes[1:])
                return _Value(f"({code})")
            case "slice":
                ends = ":".join(codes[1:]) if len(codes) == 3 else f"{''.join(codes[1:])}:"
                return _Value(f"({codes[0]}[{ends}])", arguments[0].name)
            case "json":
                code = _json(codes[0])
            case "print" | "printf":
                return self._format(name, arguments)
            case "currentDate":
                code = 'strftime_now("%Y-%m-%d")'
            case _ if name in _COMPARISONS:
                code = f"{codes[0]} {_COMPARISONS[name]} {codes[1]}"
            case _:
                raise self._error(f"the function {name} is not supported")
        return _Value(f"({code})")

    def _format(self, name: str, arguments: list[_Value]) -> _Value:
        if name == "print":
            return _Value(f"({' ~ '.join(map(_printed, arguments)) or repr('')})")
        form, *rest = arguments
        if not form.literal:
            raise self._error("printf takes its format as a string")
        parts = re.split(r"(%%|%[a-zA-Z])", json.loads(form.code))
        codes, values = [], iter(rest)
        for part in parts:
            if part in ("%s", "%d", "%v"):
                value = next(values, None)
                if value is None:
                    raise self._error("printf has too few arguments")
                codes.append(_printed(value))
            elif part == "%q" and (value := next(values, None)) is not None:
                codes.append(_json(value.code))
            elif part.startswith("%") and part != "%%":
                raise self._error(f"printf does not know {part}")
            elif part:
                codes.append(_quoted(part.replace("%%", "%")))
        return _Value(f"({' ~ '.join(codes) or repr('')})")


def _json(code: str) -> str:
    return f"({code})|tojson(separators=(',', ':'))"


def _printed(value: _Value) -> str:
    """Return the text that Go prints for a value: JSON for an object, nothing for a missing value."""
    if value.name in _OBJECTS:
        return f"({_json(value.code)})"
    return (
        value.code
        if value.literal or value.code.startswith("(")
        else f"({value.code} if {value.code} is not none else '')"
    )


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
