"""Downloads over HTTP: resumed, verified, bounded; and never a partial file where a model belongs."""

import hashlib
import http.server
from collections.abc import Callable
from typing import Any

import pytest

from llamay_cli.errors import CliError, IntegrityError, NotFoundError, RefusedError, UnreachableError
from llamay_cli.pull import Limits, Options, download, parse, pull_model
from llamay_cli.store import Store

MODEL = "/models/m.gguf"
Handler = http.server.BaseHTTPRequestHandler


def fetch(web: Any, store: Store, path: str = MODEL, **options: Any) -> bytes:
    source = parse(web.url + path)
    assert source is not None
    entry = pull_model(source, store, Options(**options))
    return store.path(entry).read_bytes()


def test_a_file_arrives_whole_under_its_name(web: Any, store: Store, gguf: Any, serve_ranges: Any) -> None:
    body = gguf(3 << 20)
    web.routes[MODEL] = serve_ranges(body)
    seen: list[tuple[str, int, int]] = []

    source = parse(web.url + MODEL)
    assert source is not None
    entry = pull_model(source, store, Options(), lambda *step: seen.append(step))

    assert entry.manifest.name == "m"
    assert store.path(entry).read_bytes() == body
    assert seen[-1] == ("m.gguf", len(body), len(body))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_a_cut_connection_is_resumed_and_only_the_rest_is_asked_for(
    web: Any, store: Store, gguf: Any, serve_ranges: Any
) -> None:
    body = gguf(100_000)
    web.routes[MODEL] = serve_ranges(body, cut=40_000, cuts=2)

    assert fetch(web, store) == body
    asked = [headers.get("range") for _, headers in web.requests]
    assert asked == [None, "bytes=40000-", "bytes=80000-"]
    assert web.requests[1][1]["if-range"] == '"one"'


def test_pl04_a_killed_pull_goes_on_in_the_next_one(
    web: Any, store: Store, gguf: Any, serve_ranges: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = gguf(100_000)
    web.routes[MODEL] = serve_ranges(body, cut=60_000, cuts=1)

    def killed(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(download.time, "sleep", killed)
    with pytest.raises(KeyboardInterrupt):
        fetch(web, store)
    assert store.names() == []
    assert not store.blobs.exists() or not list(store.blobs.iterdir())

    assert fetch(web, store) == body
    assert web.requests[-1][1]["range"] == "bytes=60000-"


def test_pl04_a_file_that_changed_meanwhile_is_fetched_from_the_start(
    web: Any, store: Store, gguf: Any, serve_ranges: Any
) -> None:
    old, new = gguf(50_000, 1), gguf(50_000, 2)
    first = serve_ranges(old, cut=20_000)
    later = serve_ranges(new, etag='"two"')
    web.routes[MODEL] = lambda handler: (first if len(web.requests) == 1 else later)(handler)

    assert fetch(web, store) == new


def test_pl04_a_server_that_ignores_ranges_is_read_from_the_start(
    web: Any, store: Store, gguf: Any, serve_ranges: Any, respond: Any
) -> None:
    body = gguf(50_000)
    first = serve_ranges(body, cut=20_000)
    web.routes[MODEL] = lambda handler: (
        first(handler) if len(web.requests) == 1 else respond(handler, body, ETag='"one"')
    )

    assert fetch(web, store) == body


def test_a_server_that_sends_the_wrong_part_is_not_believed(
    web: Any, store: Store, gguf: Any, serve_ranges: Any, respond: Any
) -> None:
    body = gguf(50_000)
    good, first = serve_ranges(body), serve_ranges(body, cut=20_000)

    def route(handler: Handler) -> None:
        if len(web.requests) == 1:
            first(handler)
        elif len(web.requests) == 2:
            respond(
                handler,
                body[10_000:],
                status=206,
                ETag='"one"',
                Content_Range=f"bytes 10000-49999/{len(body)}",
            )
        else:
            good(handler)

    web.routes[MODEL] = route
    assert fetch(web, store) == body


def test_the_range_is_beyond_the_file_after_it_shrank(
    web: Any, store: Store, gguf: Any, serve_ranges: Any
) -> None:
    first, later = serve_ranges(gguf(50_000), cut=40_000), serve_ranges(gguf(9_000))
    web.routes[MODEL] = lambda handler: (first if len(web.requests) == 1 else later)(handler)

    with pytest.raises(IntegrityError, match="9000 bytes where 50000"):
        fetch(web, store)
    assert fetch(web, store) == gguf(9_000)


def test_a_weak_etag_is_no_promise(web: Any, store: Store, gguf: Any, serve_ranges: Any) -> None:
    body = gguf(50_000)
    web.routes[MODEL] = serve_ranges(body, etag='W/"one"', cut=20_000)

    assert fetch(web, store) == body
    assert "if-range" not in web.requests[1][1]


def test_pl05_a_wrong_digest_installs_nothing_and_keeps_what_the_name_meant(
    web: Any, store: Store, gguf: Any, serve_ranges: Any
) -> None:
    web.routes[MODEL] = serve_ranges(gguf(5_000, 1))
    fetch(web, store)
    web.routes[MODEL] = serve_ranges(gguf(5_000, 2))

    with pytest.raises(IntegrityError, match="SHA-256"):
        fetch(web, store, sha256="0" * 64)
    assert store.path(store.get("m")).read_bytes() == gguf(5_000, 1)
    assert list(store.partial.glob("*/*")) == []


def test_the_right_digest_is_accepted(web: Any, store: Store, gguf: Any, serve_ranges: Any) -> None:
    body = gguf(5_000)
    web.routes[MODEL] = serve_ranges(body)

    assert fetch(web, store, sha256=hashlib.sha256(body).hexdigest()) == body


def test_what_is_no_gguf_file_is_refused_at_its_first_bytes(web: Any, store: Store, respond: Any) -> None:
    sent = []

    def login_page(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(1 << 30))
        handler.end_headers()
        try:
            for _ in range(1024):
                handler.wfile.write(b"<html>".ljust(1 << 20))
                sent.append(1)
        except OSError:
            handler.close_connection = True

    web.routes[MODEL] = login_page
    with pytest.raises(IntegrityError, match="does not begin with GGUF"):
        fetch(web, store)
    assert len(sent) < 100


def test_pl09_a_file_over_the_limit_is_refused_before_it_is_fetched(
    web: Any, store: Store, gguf: Any, serve_ranges: Any
) -> None:
    web.routes[MODEL] = serve_ranges(gguf(50_000))

    with pytest.raises(RefusedError, match="over the limit"):
        fetch(web, store, limits=Limits(model=10_000))


def test_pl09_an_endless_answer_ends_at_the_limit(web: Any, store: Store) -> None:
    def endless(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        try:
            handler.wfile.write(b"GGUF")
            while True:
                handler.wfile.write(bytes(1 << 16))
        except OSError:
            pass

    web.routes[MODEL] = endless
    with pytest.raises(IntegrityError, match="sends more than"):
        fetch(web, store, limits=Limits(model=1 << 20))


def test_pl10_a_full_disk_is_noticed_before_the_download(
    web: Any, store: Store, gguf: Any, serve_ranges: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    web.routes[MODEL] = serve_ranges(gguf(50_000))
    monkeypatch.setattr(Store, "free_space", lambda self: 10_000)

    with pytest.raises(CliError, match="are free"):
        fetch(web, store)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429, 408])
def test_pl06_a_busy_server_is_asked_again(
    web: Any, store: Store, gguf: Any, serve_ranges: Any, respond: Any, status: int
) -> None:
    body, good = gguf(5_000), serve_ranges(gguf(5_000))
    web.routes[MODEL] = lambda handler: (
        respond(handler, b"later", status=status, Retry_After="1") if len(web.requests) < 3 else good(handler)
    )

    assert fetch(web, store) == body
    assert len(web.requests) == 3


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, RefusedError), (403, RefusedError), (404, NotFoundError), (400, UnreachableError)],
)
def test_pl06_a_refusal_is_final(
    web: Any, store: Store, respond: Any, status: int, kind: type[CliError]
) -> None:
    web.routes[MODEL] = lambda handler: respond(handler, b"no", status=status)

    with pytest.raises(kind, match=str(status)):
        fetch(web, store)
    assert len(web.requests) == 1


def test_pl06_a_server_that_never_gets_further_is_given_up(web: Any, store: Store, respond: Any) -> None:
    web.routes[MODEL] = lambda handler: respond(handler, b"", status=503)

    with pytest.raises(UnreachableError, match="503"):
        fetch(web, store)
    assert len(web.requests) == download.ATTEMPTS


def test_pl02_redirects_are_followed_and_loops_are_not(
    web: Any, store: Store, gguf: Any, serve_ranges: Any, respond: Any
) -> None:
    web.routes["/real"] = serve_ranges(gguf(5_000))
    web.routes[MODEL] = lambda handler: respond(handler, b"", status=302, Location="/real")
    assert fetch(web, store) == gguf(5_000)

    web.routes[MODEL] = lambda handler: respond(handler, b"", status=302, Location=MODEL)
    with pytest.raises(UnreachableError, match="redirect"):
        fetch(web, store)


def test_pl02_pl11_a_redirect_to_plain_http_elsewhere_is_refused(
    web: Any, store: Store, respond: Any
) -> None:
    web.routes[MODEL] = lambda handler: respond(handler, b"", status=302, Location="http://192.0.2.1/x.gguf")

    with pytest.raises(RefusedError, match="plain http"):
        fetch(web, store)


def test_an_encoding_that_was_not_asked_for_is_refused(
    web: Any, store: Store, respond: Any, gguf: Any
) -> None:
    web.routes[MODEL] = lambda handler: respond(handler, gguf(100), Content_Encoding="gzip")

    with pytest.raises(IntegrityError, match="encoding"):
        fetch(web, store)
    assert web.requests[0][1]["accept-encoding"] == "identity"


@pytest.mark.parametrize("named", [1, 3])
def test_the_parts_of_a_split_model_come_along(
    web: Any, store: Store, gguf: Any, serve_ranges: Any, named: int
) -> None:
    for i in (1, 2, 3):
        web.routes[f"/m-{i:05d}-of-00003.gguf"] = serve_ranges(gguf(1000, i))

    assert fetch(web, store, f"/m-{named:05d}-of-00003.gguf") == gguf(1000, 1)
    assert [file.name for file in store.get("m").models] == [f"m-{i:05d}-of-00003.gguf" for i in (1, 2, 3)]


def test_hf05_offline_means_no_request(web: Any, store: Store) -> None:
    with pytest.raises(CliError, match="--offline"):
        fetch(web, store, offline=True)
    assert web.requests == []


def test_the_command_says_where_it_came_from(
    web: Any, store: Store, gguf: Any, serve_ranges: Any, llamay: Callable[..., Any]
) -> None:
    web.routes[MODEL] = serve_ranges(gguf(5_000))

    result = llamay("pull", web.url + MODEL, "--name", "mine", "--progress", "json")

    assert result.exit_code == 0
    assert result.stdout == ""
    assert '"done": 5000, "total": 5000' in result.stderr
    assert "pulled mine" in result.stderr
    assert store.get("mine").manifest.source == web.url + MODEL
