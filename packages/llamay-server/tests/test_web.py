"""The web chat in a real browser, under its own policy. Needs playwright and a Chromium; skipped without."""

from __future__ import annotations

import shutil
import time

import pytest

from .fake_engine import FakeModel

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))),
    None,
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


def said(prompt: str) -> str:
    last = prompt.rsplit("<|im_start|>user\n", 1)[-1].split("<|im_end|>")[0]
    return f"You said **{last}**.\n\n```html\n<b>code</b>\n```\n\n<img src=x onerror=\"document.title='broken'\">"


@pytest.fixture
def page(start):
    server = start(FakeModel("fake", script=said), FakeModel("other"))
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 800})
        page.problems = []
        page.on("pageerror", lambda e: page.problems.append(str(e)))
        page.on("console", lambda m: page.problems.append(m.text) if m.type in ("error", "warning") else None)
        page.server = server
        page.goto(f"{server.url}/ui/")
        page.wait_for_selector("#model option", state="attached")
        yield page
        assert page.problems == []
        browser.close()


def until(page, expression: str) -> None:
    for _ in range(400):
        if page.evaluate(expression):
            return
        time.sleep(0.02)
    raise AssertionError(f"never true: {expression}; status: {page.inner_text('#status')}")


def say(page, text: str, articles: int) -> None:
    page.fill("#input", text)
    page.press("#input", "Enter")
    until(
        page,
        f"document.querySelectorAll('article').length === {articles} && !document.querySelector('#send').disabled",
    )


def test_a_conversation_forks_at_any_answer_and_branches_stand_side_by_side(page):
    say(page, "first", 2)
    assert "You said first." in page.inner_text("article.assistant")
    assert page.locator("article img").count() == 0
    assert page.title() == "llamay"
    say(page, "second", 4)
    page.click("article.assistant >> nth=0 >> text=Continue from here")
    assert page.locator("article").count() == 2
    say(page, "another way", 4)
    assert page.locator(".branch").count() == 6
    page.fill("#count", "3")
    page.fill("#input", "three ways")
    page.press("#input", "Enter")
    until(
        page, "document.querySelectorAll('.column').length === 3 && !document.querySelector('#send').disabled"
    )
    page.click("#compare")
    assert page.locator(".column").count() == 1
    page.click(".branch >> nth=1 >> input[type=checkbox]")
    page.click("#compare")
    assert page.locator(".column").count() == 4


def test_stopping_ends_the_generation_on_the_server(page):
    page.server.model.script = lambda prompt: "word " * 2000
    page.server.model.decode_delay = 0.01
    page.fill("#input", "long")
    page.press("#input", "Enter")
    until(page, "document.querySelector('article:last-child')?.textContent.includes('word')")
    page.click("#stop")
    until(page, "document.querySelector('#status').textContent === 'Stopped.'")
    page.server.wait(lambda: page.server.model.live == 0)


def test_a_branch_is_saved_restored_and_gone_on_from(page, tmp_path):
    say(page, "first", 2)
    with page.expect_download() as download:
        page.click("#save")
    path = tmp_path / "saved.llamay"
    download.value.save_as(path)
    page.set_input_files("#restore", path)
    until(page, "document.querySelector('#status').textContent === 'Restored.'")
    say(page, "after", 3)
    assert "You said after." in page.inner_text("article:last-child")
    page.reload()
    page.wait_for_selector("article")
    assert page.locator("article").count() == 3


def test_after_a_restart_the_conversation_is_read_again(page):
    say(page, "first", 2)
    for named in list(page.server.app.services.contexts.of("")):
        page.server.app.services.contexts.drop(named, "dropped")
    page.problems = []
    say(page, "second", 4)
    page.problems = [p for p in page.problems if "404" not in p]
    assert "You said second." in page.inner_text("article:last-child")


def test_the_api_page_lists_the_routes(page):
    page.goto(f"{page.server.url}/ui/docs.html")
    page.wait_for_selector("details")
    page.click("summary >> text=POST /v1/contexts/{context_id}/fork")
    assert page.locator("details[open] td >> text=label").count() == 1


def test_a_message_is_edited_as_a_branch_of_its_own_and_branches_are_deleted_with_their_contexts(page):
    say(page, "first", 2)
    say(page, "second", 4)
    page.click("article.user >> nth=1 >> text=Edit")
    assert page.input_value("#input") == "second"
    assert page.locator("article").count() == 2
    say(page, "otherwise", 4)
    assert page.locator(".branch").count() == 6
    page.hover(".branch >> nth=2")
    page.click(".branch >> nth=2 >> .drop")
    assert page.locator(".branch").count() == 4
    assert "otherwise" in page.inner_text("article.user >> nth=1")
    page.server.wait(lambda: len(list(page.server.app.services.contexts.of(""))) == 2)


def test_the_keyboard_is_enough(page):
    say(page, "first", 2)
    page.server.model.script = lambda prompt: "word " * 2000
    page.server.model.decode_delay = 0.01
    page.fill("#input", "long")
    page.press("#input", "Enter")
    until(page, "document.querySelector('article:last-child')?.textContent.includes('word')")
    page.keyboard.press("Escape")
    until(page, "document.querySelector('#status').textContent === 'Stopped.'")
    assert page.locator("article.cut").count() == 1
    page.focus("#input")
    page.keyboard.press("ArrowUp")
    assert page.input_value("#input") == "long"
    page.keyboard.press("Alt+n")
    assert page.locator("article").count() == 0
    page.focus(".branch >> nth=0 >> button >> nth=0")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.locator("article").count() == 2


def test_another_model_reads_the_conversation_and_goes_on(page):
    say(page, "first", 2)
    page.select_option("#model", "other")
    say(page, "second", 4)
    models = {named.model for named in page.server.app.services.contexts.of("")}
    assert models == {"fake", "other"}
    page.reload()
    page.wait_for_selector("article")
    until(page, "document.querySelector('#model').value === 'other'")


def test_what_goes_wrong_is_said_and_can_be_tried_again(page):
    say(page, "first", 2)
    page.server.model.fail_after = 3
    page.fill("#input", "second")
    page.press("#input", "Enter")
    until(page, "document.querySelector('#status').className === 'error'")
    assert page.inner_text("#status")
    page.server.model.fail_after = None
    page.problems = []
    page.click(".branch.user >> nth=1 >> button >> nth=0")
    page.click("article.user >> nth=1 >> text=Edit")
    page.press("#input", "Enter")
    until(
        page, "document.querySelectorAll('article').length === 4 && !document.querySelector('#send').disabled"
    )
    assert "You said second." in page.inner_text("article:last-child")


def test_a_narrow_window_has_the_branches_in_a_drawer(page):
    page.set_viewport_size({"width": 390, "height": 780})
    say(page, "first", 2)
    assert not page.is_visible("#tree")
    page.click("#menu")
    page.wait_for_selector("#tree", state="visible")
    page.click(".branch >> nth=0 >> button >> nth=0")
    page.wait_for_selector("#tree", state="hidden")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_what_models_write_becomes_elements_and_never_markup(page):
    page.server.model.script = lambda prompt: (
        "# Head\n\n| a | b |\n|---|---|\n| 1 | **2** |\n\n- one\n  - inner `x`\n- two\n\n> quoted\n\n"
        "```py\nx = 1\n```\n\n<script>document.title='broken'</script> [link](javascript:alert(1))"
    )
    say(page, "go", 2)
    for selector in ("h3", "table th", "td strong", "ul ul li code", "blockquote p", ".code pre code"):
        assert page.locator(f"article.assistant {selector}").count() >= 1, selector
    assert page.locator("article a, article script").count() == 0
    assert page.title() == "llamay"
