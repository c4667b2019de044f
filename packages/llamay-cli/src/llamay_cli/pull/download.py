"""One download over HTTP: resumed where the server allows, hashed while it arrives, bounded, retried."""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import random
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from ..console.tables import format_bytes
from ..errors import IntegrityError, NotFoundError, RefusedError, UnreachableError
from ..store import Store
from .limits import Limits
from .records import Progress

STALL = 30.0
"""Seconds without a byte after which a connection counts as dead."""
ATTEMPTS = 6
"""Attempts in a row that may bring no new byte."""
CHUNK = 1 << 20
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_RETRIED = {408, 425, 429, 500, 502, 503, 504}


@dataclass(frozen=True)
class Downloaded:
    """A finished download."""

    path: Path
    sha256: str
    size: int


def client(*, insecure: bool = False, headers: Mapping[str, str] | None = None) -> httpx.Client:
    """Return a client that follows redirects, but never to plain http on another machine."""

    def only_safe(request: httpx.Request) -> None:
        if request.url.scheme != "https" and not insecure and not _is_loopback(request.url.host):
            raise RefusedError(f"{request.url.host} would be asked over plain http", "--insecure allows it")

    return httpx.Client(
        follow_redirects=True,
        max_redirects=10,
        timeout=httpx.Timeout(STALL, connect=15.0),
        headers={"User-Agent": "llamay", **(headers or {})},
        event_hooks={"request": [only_safe]},
    )


def document(
    http: httpx.Client, url: str, limits: Limits, *, token: str | None = None
) -> tuple[Any, httpx.Response]:
    """Return a JSON document of bounded size, and the response that carried it."""
    for wait in _patience():
        with _answers(url), http.stream("GET", url, headers=_bearer(token)) as response:
            if response.status_code in _RETRIED and wait is not None:
                time.sleep(_asked_wait(response, wait))
                continue
            check_status(response, url)
            body = bytearray()
            for chunk in response.iter_bytes(1 << 16):
                body += chunk
                if len(body) > limits.document:
                    raise IntegrityError(f"{url} answers with more than {format_bytes(limits.document)}")
        try:
            return json.loads(body), response
        except (ValueError, RecursionError):
            raise IntegrityError(f"{url} answers with something that is not JSON") from None
    raise AssertionError("patience ends with None")


class Download:
    """The download of one address into one file; a later process that calls `run` again resumes it."""

    def __init__(
        self,
        http: httpx.Client,
        url: str,
        target: Path,
        *,
        store: Store,
        limits: Limits,
        progress: Progress,
        size: int | None = None,
        sha256: str | None = None,
        token: str | None = None,
        stage: str | None = None,
    ) -> None:
        self.http, self.url, self.target = http, url, target
        self.store, self.limits, self.progress = store, limits, progress
        self.size, self.sha256, self.token = size, sha256, token
        self.stage = stage or target.name
        self.state = target.with_name(f"{target.name}.json")
        self.hash = hashlib.sha256()
        self.done = 0
        self.etag: str | None = None

    def run(self) -> Downloaded:
        """Fetch to the end and verify; raises CliError kinds, and keeps the received bytes unless they are wrong."""
        if self.size is not None:
            self.limits.check(self.size, self.store, self.stage)
        self._resume()
        fruitless = 0
        while True:
            before = self.done
            try:
                if self.size is not None and self.done == self.size and self.done:
                    break
                if self._attempt():
                    break
                problem = "the server closed the connection early"
                pause = None
            except _RetryError as retry:
                problem, pause = str(retry), retry.pause
            except httpx.HTTPError as error:
                problem, pause = _reason(error), None
            fruitless = 0 if self.done > before else fruitless + 1
            if fruitless >= ATTEMPTS:
                raise UnreachableError(
                    f"{self.url}: {problem}", "what has arrived is kept: pull again to go on"
                )
            time.sleep(
                pause if pause is not None else min(30.0, 0.25 * 2**fruitless) * (0.5 + random.random())
            )
        return self._finish()

    def _resume(self) -> None:
        """Continue the download of an earlier process, if it recorded the version of the file."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            state = json.loads(self.state.read_text())
            if state["url"] != self.url or (not state["etag"] and self.sha256 is None):
                raise ValueError
            if self.size is None:
                self.size = state["size"]
            self.etag = state["etag"]
            with self.target.open("rb") as file:
                hashlib.file_digest(file, lambda: self.hash)
                self.done = file.tell()
            if self.size is not None and self.done > self.size:
                raise ValueError
            return
        self._restart()

    def _restart(self) -> None:
        self.hash, self.done, self.etag = hashlib.sha256(), 0, None
        self.target.unlink(missing_ok=True)
        self.state.unlink(missing_ok=True)

    def _attempt(self) -> bool:
        """Request the missing bytes; True when the file is whole."""
        # With a content coding, offsets and digests would be those of the coded bytes.
        headers = {"Accept-Encoding": "identity", **_bearer(self.token)}
        if self.done:
            headers["Range"] = f"bytes={self.done}-"
            if self.etag:
                headers["If-Range"] = self.etag
        with self.http.stream("GET", self.url, headers=headers) as response:
            status = response.status_code
            if status == 416 and self.done:
                self._restart()
                raise _RetryError("the server has another file there now", 0.0)
            if status in _RETRIED:
                raise _RetryError(f"the server answers {status}", _asked_wait(response, None))
            check_status(response, self.url)
            if response.headers.get("content-encoding", "identity") != "identity":
                raise IntegrityError(f"{self.url} answers with an encoding that was not asked for")
            self._align(response)
            self._receive(response)
        return self.size is None or self.done == self.size

    def _align(self, response: httpx.Response) -> None:
        """Bring file, size and version in line with the response that the server begins."""
        etag = response.headers.get("etag")
        if response.status_code == 206:
            match = _RANGE.fullmatch(response.headers.get("content-range", ""))
            changed = self.etag and etag and etag != self.etag
            if not match or int(match[1]) != self.done or changed:
                self._restart()
                raise _RetryError("the server sends another part than the one asked for", 0.0)
            total = None if match[3] == "*" else int(match[3])
        else:
            if self.done:
                self._restart()
            length = response.headers.get("content-length", "")
            total = int(length) if length.isdigit() else None
        if total is not None and self.size is not None and total != self.size:
            wrong = f"{self.url} has {total} bytes where {self.size} were announced"
            self._restart()
            raise IntegrityError(wrong)
        if self.size is None and total is not None:
            self.size = total
            self.limits.check(total, self.store, self.stage)
        # A weak ETag does not promise the same bytes.
        self.etag = etag if etag and not etag.startswith("W/") else None
        self.state.write_text(json.dumps({"url": self.url, "etag": self.etag, "size": self.size}))

    def _receive(self, response: httpx.Response) -> None:
        bound = self.size if self.size is not None else self.limits.model
        with self.target.open("ab") as file:
            if file.tell() != self.done:
                file.truncate(self.done)
                file.seek(self.done)
            try:
                for chunk in response.iter_raw():
                    if self.done == 0 and not chunk.startswith(b"GGUF"[: len(chunk)]):
                        raise IntegrityError(f"{self.url} is not a GGUF file: it does not begin with GGUF")
                    if self.done + len(chunk) > bound:
                        raise IntegrityError(f"{self.url} sends more than the {format_bytes(bound)} it may")
                    file.write(chunk)
                    self.hash.update(chunk)
                    self.done += len(chunk)
                    self.progress(self.stage, self.done, self.size or 0)
            finally:
                file.flush()

    def _finish(self) -> Downloaded:
        digest = self.hash.hexdigest()
        if self.sha256 is not None and digest != self.sha256:
            self._restart()
            raise IntegrityError(
                f"{self.url} has SHA-256 {digest}, not {self.sha256}; what was fetched is deleted",
                "pull again; if it stays, the file on the server is not the one that was announced",
            )
        self.state.unlink(missing_ok=True)
        return Downloaded(self.target, digest, self.done)


class _RetryError(Exception):
    def __init__(self, message: str, pause: float | None) -> None:
        super().__init__(message)
        self.pause = pause


def check_status(response: httpx.Response, url: str) -> None:
    """Raise the error that a status means; nothing for 200 and 206."""
    status = response.status_code
    if status in (200, 206):
        return
    if status in (401, 403):
        error = RefusedError(f"{url} answers {status}: it needs a permission that was not given")
        error.reason = response.headers.get("x-error-code", "")
        raise error
    if status in (404, 410):
        raise NotFoundError(f"{url} does not exist (the server answers {status})")
    raise UnreachableError(f"{url} answers {status}")


def _patience() -> Iterator[float | None]:
    yield from (0.5, 1.0, 2.0, 4.0)
    yield None


@contextlib.contextmanager
def _answers(url: str) -> Iterator[None]:
    try:
        yield
    except httpx.HTTPError as error:
        raise UnreachableError(
            f"{url}: {_reason(error)}", "is the network up? HTTPS_PROXY is honoured"
        ) from None


def _reason(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time"
    return str(error) or type(error).__name__


def _asked_wait(response: httpx.Response, otherwise: float | None) -> float:
    asked = response.headers.get("retry-after", "")
    return min(60.0, float(asked)) if asked.isdigit() else (1.0 if otherwise is None else otherwise)


def _bearer(token: str | None) -> dict[str, str]:
    """Return the header that carries `token`; httpx drops it when a redirect leads to another host."""
    return {"Authorization": f"Bearer {token}"} if token else {}


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return False
