"""Masks of several constraints behind the C interface, filled in one call."""

import ctypes

import numpy as np
import pytest

from llamay_kernels import Threads, fill_masks

VOCAB, WORDS = 70, 3
FILL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint32), ctypes.c_uint32)
NAME = b"llamay.token_constraint.v1"


class Face(ctypes.Structure):
    """The struct of llamay/token_constraint.h; functions that are not called stay NULL."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("self", ctypes.c_void_p),
        ("vocab_size", ctypes.c_uint32),
        ("mask_words", ctypes.c_uint32),
        ("fill_mask", FILL),
        *(
            (name, ctypes.c_void_p)
            for name in ("accept", "rollback", "fork", "forced", "complete", "release")
        ),
    )


class Allows:
    """A constraint that allows some tokens, or fails with a status."""

    def __init__(self, tokens, status=0, size=None):
        self.tokens = tokens

        def fill(_, mask, words):
            for i in range(words):
                mask[i] = sum(1 << t % 32 for t in tokens if t // 32 == i)
            return status

        self.function = FILL(fill)
        self.face = Face(size or ctypes.sizeof(Face), None, VOCAB, WORDS, self.function)
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        self.capsule = make(ctypes.addressof(self.face), NAME, None)


def bits(*tokens):
    out = np.zeros(WORDS, np.uint32)
    for t in tokens:
        out[t // 32] |= np.uint32(1 << t % 32)
    return out


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_every_row_is_told_what_it_allows_and_whether_the_text_goes_on(threads):
    sets = [[3], [0, 1, 69], list(range(VOCAB)), [69, 2], []]
    constraints = [Allows(s) for s in sets]
    masks = [np.full(WORDS, 7, np.uint32) for _ in sets]
    told = fill_masks(
        [(c.capsule, m) for c, m in zip(constraints, masks, strict=True)],
        bits(2, 69),
        None if threads is None else Threads(threads),
    )
    for tokens, mask, (allowed, going, seconds) in zip(sets, masks, told, strict=True):
        assert mask.tolist() == bits(*tokens).tolist()
        assert allowed == len(tokens)
        assert going == len(set(tokens) - {2, 69})
        assert seconds >= 0


def test_a_constraint_that_fails_touches_no_other():
    good, bad = Allows([4, 5]), Allows([1], status=3)
    masks = [np.zeros(WORDS, np.uint32) for _ in range(2)]
    told = fill_masks([(bad.capsule, masks[0]), (good.capsule, masks[1])], bits())
    assert [t[:2] for t in told] == [(-3, 0), (2, 2)]


def test_end_tokens_may_be_fewer_words_than_the_mask():
    one = Allows([1, 40])
    assert fill_masks([(one.capsule, np.zeros(WORDS, np.uint32))], bits(1)[:1])[0][:2] == (2, 1)


def test_what_does_not_fit_is_refused():
    one = Allows([1])
    with pytest.raises(ValueError, match="the mask has 2 words but the constraint's 70 tokens need 3"):
        fill_masks([(one.capsule, np.zeros(2, np.uint32))], bits())
    with pytest.raises(TypeError, match="token_constraint"):
        fill_masks([("no capsule", np.zeros(WORDS, np.uint32))], bits())
    short = Allows([1], size=24)
    with pytest.raises(TypeError, match="cut short"):
        fill_masks([(short.capsule, np.zeros(WORDS, np.uint32))], bits())
    assert fill_masks([], bits()) == []
