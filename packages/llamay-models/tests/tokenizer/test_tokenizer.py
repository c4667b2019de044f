"""What a tokenizer promises, on small vocabularies that are made here."""

# ruff: noqa: RUF001 - DeepSeek writes its tokens with U+FF5C

from __future__ import annotations

import codecs
import hashlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamay_models import gguf, tokenizer

Write = Callable[..., gguf.GGUFFile]
BOUNDED = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def byte_level(write_vocabulary: Write, byte_level_keys: dict[str, Any]) -> tokenizer.Tokenizer:
    return tokenizer.from_gguf(write_vocabulary(byte_level_keys))


@pytest.fixture
def sentencepiece(write_vocabulary: Write, sentencepiece_keys: dict[str, Any]) -> tokenizer.Tokenizer:
    return tokenizer.from_gguf(write_vocabulary(sentencepiece_keys))


def texts(ours: tokenizer.Tokenizer, ids: list[int]) -> list[str]:
    return [ours.token_text(i) for i in ids]


def test_byte_level_merges_by_rank(byte_level: tokenizer.Tokenizer) -> None:
    assert texts(byte_level, byte_level.encode("hello world")) == ["hello", "Ġworld"]
    assert texts(byte_level, byte_level.encode("hellé")) == ["hell", "Ã©"]
    assert byte_level.encode("") == []


def test_sentencepiece_merges_by_score_after_a_space(sentencepiece: tokenizer.Tokenizer) -> None:
    assert texts(sentencepiece, sentencepiece.encode("hello world")) == ["<s>", "▁hello", "▁world"]
    assert texts(sentencepiece, sentencepiece.encode("hello€", add_special=False)) == [
        "▁hello",
        "<0xE2>",
        "<0x82>",
        "<0xAC>",
    ]
    assert sentencepiece.encode("") == [1]


@BOUNDED
@given(raw=st.binary(max_size=60))
def test_any_bytes_survive_the_round_trip(
    byte_level: tokenizer.Tokenizer, sentencepiece: tokenizer.Tokenizer, raw: bytes
) -> None:
    for ours in (byte_level, sentencepiece):
        ids = ours.encode(raw, add_special=False)
        assert ours.decode_bytes(ids) == raw.replace(
            "▁".encode(), b" " if ours is sentencepiece else "▁".encode()
        )
        assert b"".join(ours.token_bytes(i) for i in ids).endswith(ours.decode_bytes(ids))


@BOUNDED
@given(text=st.text(alphabet="helo wrd<|im_start|>tool_call é\n", max_size=60), parse=st.booleans())
def test_texts_near_special_tokens_survive_the_round_trip(
    byte_level: tokenizer.Tokenizer, text: str, parse: bool
) -> None:
    ids = byte_level.encode(text, parse_special=parse)
    assert byte_level.decode(ids) == text
    assert byte_level.encode_array(text, parse_special=parse).tolist() == ids


@BOUNDED
@given(data=st.data(), text=st.text(max_size=40))
def test_streaming_gives_the_same_text_whatever_the_steps(
    byte_level: tokenizer.Tokenizer, data: st.DataObject, text: str
) -> None:
    ids = byte_level.encode(text)
    decoder = byte_level.stream_decoder()
    parts = []
    while ids:
        n = data.draw(st.integers(1, 3))
        parts.append(decoder.push(*ids[:n]))
        ids = ids[n:]
    assert "\ufffd" not in "".join(parts) or "\ufffd" in text
    assert "".join(parts) + decoder.finish() == text


def test_streaming_holds_back_half_a_character_and_shows_it_broken_at_the_end(
    byte_level: tokenizer.Tokenizer,
) -> None:
    ids = byte_level.encode("€")
    assert len(ids) == 3
    decoder = byte_level.stream_decoder()
    assert [decoder.push(i) for i in ids] == ["", "", "€"]
    assert decoder.push(ids[0]) == ""
    assert decoder.finish() == "\ufffd"
    assert decoder.finish() == ""


@BOUNDED
@given(data=st.data())
def test_streaming_any_tokens_gives_what_pythons_own_decoder_gives(
    sentencepiece: tokenizer.Tokenizer, data: st.DataObject
) -> None:
    ids = data.draw(st.lists(st.integers(0, sentencepiece.vocab_size - 1), max_size=40))
    keep = data.draw(st.lists(st.integers(0, 3), max_size=2))
    ours = sentencepiece.stream_decoder(skip_special=True, keep=keep)
    theirs = codecs.getincrementaldecoder("utf-8")("replace")
    for i in ids:
        hidden = sentencepiece.is_special(i) and i not in keep
        assert ours.push(i) == theirs.decode(b"" if hidden else sentencepiece.token_bytes(i))
    assert ours.finish() == theirs.decode(b"", final=True)


def test_streaming_refuses_a_token_that_is_none(byte_level: tokenizer.Tokenizer) -> None:
    with pytest.raises(IndexError, match="token -1 is not in the vocabulary"):
        byte_level.stream_decoder().push(-1)


def test_control_tokens_are_text_unless_asked_for(byte_level: tokenizer.Tokenizer) -> None:
    text = "<|im_start|>hello<|im_end|>"
    start, end = byte_level.find("<|im_start|>"), byte_level.find("<|im_end|>")
    plain = byte_level.encode(text)
    assert start not in plain
    assert end not in plain
    parsed = byte_level.encode(text, parse_special=True)
    assert (parsed[0], parsed[-1]) == (start, end)
    assert byte_level.decode(parsed, skip_special=True) == "hello"
    assert byte_level.decode(parsed) == text


def test_user_defined_tokens_count_in_any_text(byte_level: tokenizer.Tokenizer) -> None:
    assert byte_level.find("<tool_call>") in byte_level.encode("x<tool_call>y")
    assert byte_level.is_user_defined(byte_level.encode("<tool_call>")[0])


def test_tokens_beyond_the_byte_alphabet_stand_for_their_text(byte_level: tokenizer.Tokenizer) -> None:
    token = byte_level.find("<｜end｜>")
    assert token is not None
    assert byte_level.token_bytes(token) == "<｜end｜>".encode()
    assert byte_level.encode("<｜end｜>", parse_special=True) == [token]
    assert token not in byte_level.encode("<｜end｜>")


def test_trusted_spans_decide_where_control_tokens_count(byte_level: tokenizer.Tokenizer) -> None:
    raw = b"<|im_start|>hello <|im_start|>world"
    start = byte_level.find("<|im_start|>")
    assert byte_level.encode_trusting(raw, [(0, len(raw))]) == byte_level.encode(raw, parse_special=True)
    assert byte_level.encode_trusting(raw, []) == byte_level.encode(raw)
    only_first = byte_level.encode_trusting(raw, [(0, 12)])
    assert only_first[0] == start
    assert only_first.count(start) == 1
    assert byte_level.decode_bytes(only_first) == raw
    assert start not in byte_level.encode_trusting(raw, [(0, 11), (11, 12)])


def test_a_sentencepiece_text_cannot_spell_a_control_token_by_merging(
    sentencepiece: tokenizer.Tokenizer,
) -> None:
    assert 2 not in sentencepiece.encode("</s>")
    assert sentencepiece.encode("</s>", parse_special=True, add_special=False) == [2]
    assert 3 + 0x0A not in sentencepiece.encode("<0x0A>")
    assert sentencepiece.decode(sentencepiece.encode("<0x0A>", add_special=False)) == "<0x0A>"


@BOUNDED
@given(
    text=st.text(alphabet="helo wrd€", min_size=1, max_size=20),
    more=st.text(alphabet="helo wrd€", max_size=20),
)
def test_a_continuation_is_the_text_that_was_given(
    sentencepiece: tokenizer.Tokenizer, byte_level: tokenizer.Tokenizer, text: str, more: str
) -> None:
    for ours in (sentencepiece, byte_level):
        begun = ours.encode(text)
        assert ours.decode([*begun, *ours.encode(more, add_special=False, continuation=True)]) in (
            text + more,
            "<s>" + text + more,
        )


def test_no_space_is_put_before_a_continuation(sentencepiece: tokenizer.Tokenizer) -> None:
    for special in (True, False):  # nothing goes before what goes on
        ids = sentencepiece.encode("hello world", add_special=special, continuation=True)
        assert texts(sentencepiece, ids)[-1] == "▁world"
        assert "▁hello" not in texts(sentencepiece, ids)
        assert 1 not in ids
    assert texts(sentencepiece, sentencepiece.encode(" world", add_special=False, continuation=True)) == [
        "▁world"
    ]


def test_the_space_before_a_sentencepiece_text_is_dropped_again(sentencepiece: tokenizer.Tokenizer) -> None:
    for text in ("hello", " hello", "  hello", "", " "):
        ids = sentencepiece.encode(text)
        assert sentencepiece.decode(ids, skip_special=True) == text
    more = sentencepiece.encode("world", add_special=False)
    assert sentencepiece.decode(more, continuation=True) == " world"
    assert sentencepiece.stream_decoder().push(*more) == " world"


def merge_slowly(parts: list[str], rank: Callable[[str, str], float]) -> list[str]:
    """Merge the best pair, leftmost first, until there is none: byte-pair encoding as it is defined."""
    while len(parts) > 1:
        best = min(range(len(parts) - 1), key=lambda i: (rank(parts[i], parts[i + 1]), i))
        if rank(parts[best], parts[best + 1]) == float("inf"):
            break
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    return parts


@BOUNDED
@given(letters=st.text("helo", min_size=1, max_size=20) | st.text("helo", min_size=45, max_size=120))
def test_merging_is_that_of_the_definition_for_short_and_long_pieces(
    byte_level: tokenizer.Tokenizer, sentencepiece: tokenizer.Tokenizer, letters: str
) -> None:
    ranks = {("h", "e"): 0.0, ("l", "l"): 1.0, ("he", "ll"): 2.0, ("hell", "o"): 3.0}
    slow = merge_slowly(list(letters), lambda a, b: ranks.get((a, b), float("inf")))
    assert texts(byte_level, byte_level.encode(letters)) == slow
    words = {"he": 2, "ll": 2, "hell": 4, "hello": 5, "▁hello": 6}
    slow = merge_slowly(list("▁" + letters), lambda a, b: -words.get(a + b, float("-inf")))
    assert texts(sentencepiece, sentencepiece.encode(letters, add_special=False)) == slow


def test_a_token_with_a_space_inside_is_found(
    write_vocabulary: Write, sentencepiece_keys: dict[str, Any]
) -> None:
    keys = sentencepiece_keys | {"tokens": [*sentencepiece_keys["tokens"], ">▁", ">▁<"]}
    keys["token_type"] = np.append(keys["token_type"], [1, 1]).astype(np.int32)
    keys["scores"] = np.append(keys["scores"], [9.0, 9.5]).astype(np.float32)
    ours = tokenizer.from_gguf(write_vocabulary(keys))
    assert texts(ours, ours.encode("o> <h", add_special=False)) == ["▁", "o", ">▁<", "h"]


def test_pieces_that_repeat_in_a_long_text_are_encoded_alike(byte_level: tokenizer.Tokenizer) -> None:
    words = ["hello", " world", " hellé", " h", " he", " hel", " hell", "\n\n", "12", " 日本", "hello world"]
    rng = np.random.default_rng(3)
    text = "".join(words[i] for i in rng.integers(0, len(words), 3000))
    assert byte_level.decode(byte_level.encode(text)) == text
    middle = text[: len(text) // 2].rfind(" world")
    apart = byte_level.encode(text[:middle]) + byte_level.encode(text[middle:])
    assert byte_level.encode(text) == apart


def test_no_space_is_added_where_the_file_says_so(
    write_vocabulary: Write, sentencepiece_keys: dict[str, Any]
) -> None:
    ours = tokenizer.from_gguf(write_vocabulary(sentencepiece_keys | {"add_space_prefix": False}))
    assert texts(ours, ours.encode("hello", add_special=False)) == ["hello"]
    assert ours.decode(ours.encode(" hello", add_special=False)) == " hello"


def test_begin_and_end_tokens_follow_the_file(
    write_vocabulary: Write, byte_level_keys: dict[str, Any]
) -> None:
    flags: dict[str, Any] = {"add_bos_token": True, "add_eos_token": True}
    ours = tokenizer.from_gguf(write_vocabulary(byte_level_keys | flags))
    assert (ours.adds_bos, ours.adds_eos) == (True, True)
    assert ours.encode("h") == [ours.bos, ord("h"), ours.eos]
    assert ours.encode_array("h").tolist() == [ours.bos, ord("h"), ours.eos]
    assert ours.encode("h", add_special=False) == [ord("h")]
    llama3 = tokenizer.from_gguf(write_vocabulary(byte_level_keys | {"pre": "llama-bpe"}))
    assert llama3.adds_bos
    assert not tokenizer.from_gguf(write_vocabulary(byte_level_keys)).adds_bos


def test_tokens_that_end_generation_are_found_by_id_and_by_name(
    write_vocabulary: Write, byte_level_keys: dict[str, Any]
) -> None:
    ours = tokenizer.from_gguf(write_vocabulary(byte_level_keys))
    assert ours.eog == {ours.find("<|im_end|>")}
    assert ours.eot == ours.find("<|im_end|>")
    keys = byte_level_keys | {"tokens": [*byte_level_keys["tokens"], "<|endoftext|>", "<file_end>"]}
    keys["token_type"] = np.append(keys["token_type"], np.array([1, 1], np.int32))
    keys["eos_token_id"] = len(keys["tokens"]) - 1
    ours = tokenizer.from_gguf(write_vocabulary(keys))
    assert {ours.token_text(i) for i in ours.eog} == {"<|im_end|>", "<|endoftext|>", "<file_end>"}
    assert ours.is_special(ours.find("<|endoftext|>") or -1), "its name says so, whatever its type"


def test_an_html_tag_does_not_end_generation(
    write_vocabulary: Write, byte_level_keys: dict[str, Any]
) -> None:
    keys = byte_level_keys | {"tokens": [*byte_level_keys["tokens"], "</s>"]}
    keys["token_type"] = np.append(keys["token_type"], np.int32(4)).astype(np.int32)
    ours = tokenizer.from_gguf(write_vocabulary(keys))
    assert ours.find("</s>") not in ours.eog
    assert ours.find("</s>") in ours.encode("a</s>b")


def test_white_space_beside_special_tokens_is_stripped_for_phi_3(
    write_vocabulary: Write, byte_level_keys: dict[str, Any]
) -> None:
    ours = tokenizer.from_gguf(write_vocabulary(byte_level_keys, name="Phi-3 mini"))
    ids = ours.encode("hello <|im_end|> \n hello", parse_special=True)
    assert texts(ours, ids) == ["hello", "Ġ", "<|im_end|>", "hello"]


def test_longer_special_tokens_win_over_shorter_ones(
    write_vocabulary: Write, byte_level_keys: dict[str, Any]
) -> None:
    extra = ["ab", "bcd", "\n\n", "\n\n\n"]
    keys = byte_level_keys | {"tokens": [*byte_level_keys["tokens"], *extra]}
    keys["token_type"] = np.append(keys["token_type"], np.full(len(extra), 4)).astype(np.int32)
    ours = tokenizer.from_gguf(write_vocabulary(keys))
    assert texts(ours, ours.encode("abcd")) == ["a", "bcd"]
    assert texts(ours, ours.encode("abc")) == ["ab", "c"]
    assert texts(ours, ours.encode("\n" * 8)) == ["\n\n\n", "\n\n\n", "\n\n"]


def test_ids_outside_the_vocabulary_are_refused(byte_level: tokenizer.Tokenizer) -> None:
    for token in (-1, byte_level.vocab_size, 1 << 40):
        with pytest.raises(IndexError):
            byte_level.decode([token])
    for call in (byte_level.token_bytes, byte_level.token_text, byte_level.is_special):
        with pytest.raises(IndexError):
            call(byte_level.vocab_size)


def test_lone_surrogates_and_other_types_are_refused(byte_level: tokenizer.Tokenizer) -> None:
    with pytest.raises(UnicodeEncodeError):
        byte_level.encode("\ud800")
    with pytest.raises(TypeError):
        byte_level.encode(3)  # type: ignore[arg-type]


def test_a_wrong_argument_is_named(byte_level: tokenizer.Tokenizer) -> None:
    def refused(
        kind: type[Exception], message: str, call: Callable[..., Any], *given: Any, **named: Any
    ) -> None:
        with pytest.raises(kind, match=message) as caught:
            call(*given, **named)
        assert "\n" not in str(caught.value)

    words: Any = byte_level
    for call in (words.encode, words.encode_array):
        refused(TypeError, "text must be a str or bytes, not None", call, None)
        refused(TypeError, "text must be a str or bytes, not of type list", call, ["a"])
        refused(TypeError, "parse_special must be True or False", call, "a", parse_special=None)
        refused(TypeError, "add_special must be True or False", call, "a", add_special="no")
    refused(TypeError, "continuation must be True or False", words.encode, "a", continuation=2)
    refused(TypeError, "text must be bytes, not of type str", words.encode_trusting, "a", [])
    for spans in ([(0, -1)], [(2, 1)], [(0, 2), (1, 3)], [(0, 1 << 40)], [3], [(1, 2, 3)], [(0.5, 1)]):
        refused(ValueError, "spans must be pairs of bytes", words.encode_trusting, b"abc", spans)
    for call in (words.decode, words.decode_bytes):
        refused(TypeError, "ids must be token ids, not None", call, None)
        refused(TypeError, "ids must be token ids, not of type str", call, "12")
        refused(TypeError, "token must be a whole number, not 1.5", call, [1, 1.5])
        refused(TypeError, "token must be a whole number, not '1'", call, ["1"])
        refused(TypeError, "token must be a whole number, not True", call, [True])
        refused(TypeError, "token must be a whole number, not 1.5", call, np.array([1.5]))
        refused(TypeError, r"token must be a whole number, not \[1\]", call, [[1], [2, 3]])
        refused(
            TypeError, "ids must be token ids in one dimension, not in 2", call, np.zeros((2, 2), np.int32)
        )
        for token in (1 << 40, 1 << 63, 1 << 70, -(1 << 70)):
            refused(IndexError, f"token {token} is not in the vocabulary of", call, [1, token])
    for call in (words.token_bytes, words.token_text, words.is_special, words.is_user_defined):
        refused(TypeError, "token must be a whole number, not None", call, None)
        refused(TypeError, "token must be a whole number, not '1'", call, "1")
        refused(IndexError, "is not in the vocabulary of", call, 1 << 70)
    refused(TypeError, "text must be a str, not of type bytes", words.find, b"a")
    refused(TypeError, "skip_special must be True or False", words.stream_decoder, skip_special=1)
    refused(IndexError, "token -1 is not in the vocabulary of", words.stream_decoder, keep=[-1])
    refused(TypeError, "token must be a whole number, not 1.5", words.stream_decoder, keep=[1.5])
    refused(TypeError, "a token must be a whole number, not None", words.stream_decoder().push, None)
    refused(IndexError, "is not in the vocabulary of", words.stream_decoder().push, 1 << 70)
    assert (
        words.decode([np.int64(65), 65])
        == words.decode(np.array([65, 65], np.uint64))
        == words.decode((65, 65))
    )
    assert words.decode([]) == words.decode(iter([])) == ""


def test_the_digest_changes_with_everything_that_decides_about_ids(
    write_vocabulary: Write, byte_level_keys: dict[str, Any]
) -> None:
    def digest(**changes: Any) -> str:
        return tokenizer.from_gguf(write_vocabulary(byte_level_keys | changes)).digest()

    base = digest()
    assert base == digest()
    assert len(base) == hashlib.sha256().digest_size * 2
    merges = byte_level_keys["merges"]
    changed = [
        digest(merges=[*merges[1:], merges[0]]),
        digest(pre="smollm"),
        digest(add_bos_token=True),
        digest(eos_token_id=3),
        digest(tokens=[*byte_level_keys["tokens"][:-1], "<another>"]),
        digest(token_type=np.ones_like(byte_level_keys["token_type"])),
    ]
    assert len({base, *changed}) == len(changed) + 1


@pytest.mark.parametrize(
    "unit", ["a", "h", "he", " ", "\n", "hello", "hello ", "é", "\xff", "<", "<|im_start|>", "<tool_call>"]
)
def test_a_megabyte_of_repetition_is_no_attack(
    byte_level: tokenizer.Tokenizer, sentencepiece: tokenizer.Tokenizer, unit: str
) -> None:
    for ours in (byte_level, sentencepiece):
        start = time.perf_counter()
        ours.encode(unit * (1_000_000 // len(unit)), parse_special=True)
        assert time.perf_counter() - start < 5
