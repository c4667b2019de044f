"""Text is let out whole, and stop strings are found wherever tokens begin."""

import codecs
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamay_models.engine.decoding.text_stream import TextStream


class Parts:
    """A decoder whose tokens are given pieces of text."""

    def __init__(self, parts):
        self.parts = parts

    def push(self, token):
        return self.parts[token]

    def finish(self):
        return ""


def run(parts, stops):
    stream, shown = TextStream(Parts(parts), stops), []
    for token in range(len(parts)):
        shown.append(stream.feed(token))
        if stream.stopped is not None:
            break
    return "".join(shown) + stream.finish(), stream.stopped


def first_stop(text, stops):
    """Obviously: the shortest beginning of the text that ends in a stop string."""
    for end in range(1, len(text) + 1):
        found = [s for s in stops if s and text[:end].endswith(s)]
        if found:
            stop = max(found, key=len)
            return text[: end - len(stop)], stop
    return text, None


@settings(max_examples=500)
@given(
    st.lists(st.text("ab", max_size=4), max_size=12),
    st.lists(st.text("ab", max_size=5), max_size=4),
)
def test_stop_strings_do_not_depend_on_where_tokens_begin(parts, stops):
    assert run(parts, stops) == first_stop("".join(parts), stops)


@given(
    st.lists(st.text("abc", max_size=4), max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=5), max_size=3),
)
def test_no_part_of_a_stop_string_is_ever_shown(parts, stops):
    stream, shown = TextStream(Parts(parts), stops), ""
    for token in range(len(parts)):
        shown += stream.feed(token)
        whole = "".join(parts[: token + 1])
        expected, stopped = first_stop(whole, stops)
        assert expected.startswith(shown)
        if stopped:
            assert shown == expected
            break
        held = whole[len(shown) :]
        assert not held or any(s.startswith(held) for s in stops)


@pytest.mark.parametrize(
    ("parts", "stops", "expected"),
    [
        (["Hello", " wor", "ld"], ["o w"], ("Hell", "o w")),
        (["ab", "c"], ["abd"], ("abc", None)),
        (["aab", "aac"], ["aaac"], ("aabaac", None)),
        (["abcd"], ["bc", "abcd"], ("a", "bc")),
        (["xabc"], ["bc", "abc"], ("x", "abc")),
        (["aa", "ab"], ["aab"], ("a", "aab")),
        (["abab", "abc"], ["ababc"], ("ab", "ababc")),
        (["text"], [""], ("text", None)),
    ],
)
def test_examples(parts, stops, expected):
    assert run(parts, stops) == expected


class BytesStream:
    """What a stream decoder does, by Python's own incremental decoder."""

    def __init__(self, tokenizer):
        self.tokenizer, self.decoder = tokenizer, codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token):
        return self.decoder.decode(self.tokenizer.token_bytes(token))

    def finish(self):
        return self.decoder.decode(b"", final=True)


class Bytes:
    """A tokenizer whose tokens are given pieces of UTF-8, which may divide characters."""

    def __init__(self, pieces):
        self.pieces = pieces

    def token_bytes(self, token):
        return self.pieces[token]


def pieces_of(raw, cuts):
    edges = [0, *sorted(c % (len(raw) + 1) for c in cuts), len(raw)]
    return [raw[a:b] for a, b in itertools.pairwise(edges)]


@settings(max_examples=500)
@given(
    st.text("aé語🦙", max_size=12),
    st.lists(st.integers(0, 60), max_size=30),
    st.lists(st.text("aé語🦙", max_size=4), max_size=3),
)
def test_stop_strings_are_found_where_tokens_divide_characters(text, cuts, stops):
    pieces = pieces_of(text.encode(), cuts)
    stream, shown = TextStream(BytesStream(Bytes(pieces)), stops), ""
    for token in range(len(pieces)):
        shown += stream.feed(token)
        if stream.stopped is not None:
            break
        assert "\ufffd" not in shown
    if stream.stopped is None:
        shown += stream.finish()
    assert (shown, stream.stopped) == first_stop(text, stops)
