"""Closing a context, or its model, while another thread uses it."""

import contextlib
import threading

import pytest

from llamay_models.errors import ContextError, EngineClosedError, LlamayError


@pytest.fixture
def saving(make_model, tmp_path):
    """A model, its context, and a thread that stands in the middle of saving it until `go` is set."""
    model = make_model()
    context = model.context([9, 9, 12])
    reached, go = threading.Event(), threading.Event()

    def progress(*_):
        reached.set()
        assert go.wait(20)

    thread = threading.Thread(target=lambda: context.save(tmp_path / "a.llamay", progress=progress))
    thread.start()
    assert reached.wait(20)
    yield model, context, go
    go.set()
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.parametrize("what", ["context", "model"])
def test_close_waits_for_a_save_and_no_longer(saving, what, tmp_path):
    model, context, go = saving
    closing = threading.Thread(target=context.close if what == "context" else model.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive(), "the pages are still being written"
    go.set()
    closing.join(20)
    assert not closing.is_alive()
    assert context.closed
    if what == "context":
        assert len(model.restore(tmp_path / "a.llamay")) == 3


def test_the_message_while_another_thread_saves(saving):
    _, context, _ = saving
    with pytest.raises(ContextError, match="another thread uses this context"):
        context.truncate(1)
    assert len(context.fork()) == 3


def test_a_closed_context_says_so(make_model):
    model = make_model()
    context = model.context([9, 9, 12])
    assert context.nbytes > 0
    context.close()
    for read in ("nbytes", "page_count", "tokens", "logits"):
        with pytest.raises(ContextError, match="the context is closed"):
            getattr(context, read)
    other = model.context([9])
    model.close()
    with pytest.raises(EngineClosedError):
        _ = other.nbytes


def test_an_extend_that_fails_while_the_context_is_closed_raises_its_own_error(make_model):
    context = make_model(max_rows=16).context([9, 9, 12])
    closing = threading.Thread(target=context.close)

    def progress(*_):
        closing.start()
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        context.extend([7] * 100, progress=progress)
    closing.join(20)
    assert not closing.is_alive()
    assert context.closed


def attempt(work):
    with contextlib.suppress(LlamayError):
        work()


@pytest.mark.parametrize("what", ["context", "model"])
@pytest.mark.parametrize("work", ["extend", "save", "constraint"])
def test_closing_within_an_operation_takes_effect_at_its_end(make_model, tmp_path, what, work):
    model = make_model(max_rows=16)
    context = model.context([9, 9, 12])
    close = context.close if what == "context" else model.close

    class Closes:
        def fill_mask(self, mask):
            mask[:] = 0xFFFFFFFF

        def accept(self, token):
            close()

    def run():
        if work == "extend":
            context.extend([7] * 40, progress=lambda *_: close())
        elif work == "save":
            context.save(tmp_path / "a.llamay", progress=lambda *_: close())
        else:
            _ = context.generate(max_tokens=20, constraint=Closes(), ignore_eos=True).text

    thread = threading.Thread(target=attempt, args=[run])
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert context.closed
    if what == "context":
        assert model.context([9, 9]).generate(max_tokens=2, ignore_eos=True).tokens
    context.close()
    assert model.pool.used_bytes == 0 or what == "context"
