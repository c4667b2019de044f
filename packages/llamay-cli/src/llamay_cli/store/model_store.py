"""`Store`: models by name, in one folder that several processes may use at a time."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import CliError, IntegrityError, NotFoundError
from ..paths import expand
from .manifest import DIGEST, BrokenManifestError, Entry, File, Manifest, Role, check_name

_MAX_MANIFEST = 1 << 20
_UPLOAD_SECONDS = 86400.0


@dataclass(frozen=True)
class Incoming:
    """A finished file, on the store's own disk, whose SHA-256 has been computed; `add` moves it in."""

    path: Path
    name: str
    sha256: str
    role: Role


def home() -> Path:
    """Return `$LLAMAY_HOME`, or the data folder that this platform gives to applications."""
    if chosen := os.environ.get("LLAMAY_HOME"):
        return expand(chosen)
    from platformdirs import user_data_path

    return user_data_path("llamay", appauthor=False)


class Store:
    """A model store in a folder, which the first write makes."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or home()
        self.manifests = self.root / "manifests"
        self.blobs = self.root / "blobs"
        self.views = self.root / "views"
        self.partial = self.root / "partial"
        self.uploads = self.root / "uploads"

    def __iter__(self) -> Iterator[Entry]:
        """Yield every readable model, by name."""
        for name in self.names():
            with contextlib.suppress(BrokenManifestError, NotFoundError):
                yield self.get(name)

    def names(self) -> list[str]:
        """Return the names, sorted, without opening a manifest, for shell completion."""
        try:
            found = [path.stem for path in self.manifests.iterdir() if path.suffix == ".json"]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(stem.replace("!", "/").replace("@", ":") for stem in found if not stem.startswith("."))

    def get(self, name: str) -> Entry:
        """Return the entry of `name`; raises NotFoundError or BrokenManifestError."""
        path = self._manifest_path(name)
        try:
            with path.open("rb") as file:
                raw = file.read(_MAX_MANIFEST + 1)
        except (FileNotFoundError, NotADirectoryError):
            raise self._unknown(name) from None
        try:
            if len(raw) > _MAX_MANIFEST:
                raise ValueError(f"longer than {_MAX_MANIFEST} bytes")
            manifest = Manifest.from_json(raw.decode())
        except (ValueError, CliError, RecursionError) as error:
            raise BrokenManifestError(
                f"the manifest of {name} is damaged ({error}): {path}",
                f"`llamay rm {name}`, then pull it again",
            ) from None
        return Entry(manifest, hashlib.sha256(raw).hexdigest())

    def find(self, name: str) -> Entry | None:
        """Return the entry of `name`, or None where there is none (or the text is not a name)."""
        try:
            return self.get(check_name(name))
        except NotFoundError:
            return None
        except BrokenManifestError:
            raise
        except CliError:
            return None

    def find_source(self, source: str) -> Entry | None:
        """Return the model that was pulled from exactly `source`."""
        return next((entry for entry in self if entry.manifest.source == source), None)

    def find_digest(self, sha256: str) -> Entry | None:
        """Return the model whose GGUF file, or all parts of it one after the other, have this SHA-256."""
        return next((entry for entry in self if entry.sha256 == sha256), None)

    def blob(self, file: File) -> Path:
        """Return where the bytes of `file` are; raises IntegrityError if they are missing or of another size."""
        path = self.blobs / file.digest
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise IntegrityError(
                f"{file.name} is missing from the store: {path}", "pull the model again"
            ) from None
        if size != file.size:
            raise IntegrityError(
                f"{file.name} has {size} bytes in the store where {file.size} belong: {path}",
                "pull the model again",
            )
        return path

    def path(self, entry: Entry) -> Path:
        """Return the path to hand to `llamay_models.load`: the blob, or the first part of a split model."""
        if not entry.models:
            raise IntegrityError(f"{entry.manifest.name} holds no GGUF file", "pull the model again")
        paths = [self.blob(file) for file in entry.models]
        if len(paths) == 1:
            return paths[0]
        # Parts find each other by their file names, which blobs do not have.
        view = self.views / entry.id
        view.mkdir(parents=True, exist_ok=True)
        for file, blob in zip(entry.models, paths, strict=True):
            link = view / file.name
            if not link.exists():
                with contextlib.suppress(FileExistsError):
                    _link(blob, link)
        return view / entry.models[0].name

    def add(self, name: str, source: str, files: Sequence[Incoming], details: Mapping[str, str]) -> Entry:
        """Move verified files in, and then point `name` at them in one atomic step."""
        path = self._manifest_path(check_name(name))
        self.blobs.mkdir(parents=True, exist_ok=True)
        self.manifests.mkdir(parents=True, exist_ok=True)
        with self.lock():
            listed = tuple(self._keep(file) for file in files)
            entry = self._write(path, Manifest(name, source, round(time.time(), 3), listed, dict(details)))
            self._collect()
        return entry

    @contextlib.contextmanager
    def receiving(self) -> Iterator[Path]:
        """Yield a new file on the store's disk, which is deleted when the block ends unless it was moved away."""
        import tempfile

        self.uploads.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=self.uploads)
        os.close(handle)
        path = Path(name)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def upload(self, sha256: str) -> Path | None:
        """Return the path of the bytes with this digest (64 hex digits), of a model or an upload; None without them."""
        for folder in (self.blobs, self.uploads):
            if (path := folder / f"sha256-{sha256}").is_file():
                return path
        return None

    def keep_upload(self, path: Path, sha256: str) -> None:
        """Keep a verified file for a model that is going to be made of it."""
        if not DIGEST.fullmatch(f"sha256-{sha256}"):
            raise ValueError(f"{sha256!r} is not a digest")
        with path.open("rb+") as handle:
            os.fsync(handle.fileno())
        with self.lock():
            path.chmod(0o444)
            path.replace(self.uploads / f"sha256-{sha256}")

    def make(self, name: str, source: str, files: Sequence[File], details: Mapping[str, str]) -> Entry:
        """Let `name` mean files whose bytes the store has: of other models, or uploaded.

        Raises NotFoundError for bytes that it does not have (any more), and CliError for a manifest too long to read.
        """
        path = self._manifest_path(check_name(name))
        manifest = Manifest(name, source, round(time.time(), 3), tuple(files), dict(details))
        if len(manifest.to_json()) > _MAX_MANIFEST:
            raise CliError(f"the description of {name} is longer than {_MAX_MANIFEST} bytes")
        self.blobs.mkdir(parents=True, exist_ok=True)
        self.manifests.mkdir(parents=True, exist_ok=True)
        with self.lock():
            for file in files:
                if not (self.blobs / file.digest).is_file():
                    try:
                        (self.uploads / file.digest).replace(self.blobs / file.digest)
                    except FileNotFoundError:
                        raise NotFoundError(f"{file.name} is not in the store: {file.digest}") from None
            entry = self._write(path, manifest)
            self._collect()
        return entry

    def _write(self, path: Path, manifest: Manifest) -> Entry:
        text = manifest.to_json().encode()
        temporary = path.with_name(f".{path.name}.new")
        with temporary.open("wb") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
        _sync_folder(self.blobs)
        _sync_folder(self.manifests)
        return Entry(manifest, hashlib.sha256(text).hexdigest())

    def copy(self, source: str, destination: str) -> Entry:
        """Point `destination` at the manifest of `source`; no bytes are copied."""
        manifest = self.get(source).manifest
        path = self._manifest_path(check_name(destination))
        with self.lock():
            return self._write(path, replace(manifest, name=destination))

    def remove(self, name: str) -> int:
        """Remove `name` and the files that no other name needs; return the bytes freed."""
        path = self._manifest_path(name)
        with self.lock():
            try:
                path.unlink()
            except (FileNotFoundError, NotADirectoryError):
                raise self._unknown(name) from None
            return self._collect()

    def remove_downloads(self) -> int:
        """Delete unfinished downloads that no running pull holds; return the bytes freed."""
        from filelock import FileLock, Timeout

        freed = 0
        for folder in self.partial.iterdir() if self.partial.is_dir() else ():
            with contextlib.suppress(Timeout), FileLock(folder.with_suffix(".lock"), blocking=False):
                freed += sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
                shutil.rmtree(folder, ignore_errors=True)
        return freed

    @contextlib.contextmanager
    def download(self, key: str) -> Iterator[Path]:
        """Hold the folder for the download of `key`; a second process that pulls the same waits.

        The folder is left when the block is interrupted, so that the next attempt resumes, and deleted when
        it ends well or when the fetched bytes are wrong.
        """
        from filelock import FileLock

        folder = self.partial / hashlib.sha256(key.encode()).hexdigest()[:32]
        self.partial.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f"{folder.name}.lock"):
            folder.mkdir(exist_ok=True)
            try:
                yield folder
            except (IntegrityError, NotFoundError):
                shutil.rmtree(folder, ignore_errors=True)
                raise
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the store against changes by other processes."""
        from filelock import FileLock

        self.root.mkdir(parents=True, exist_ok=True)
        with FileLock(self.root / "lock"):
            yield

    def free_space(self) -> int:
        """Return the free bytes on the disk that the store is on."""
        folder = self.root
        while not folder.exists():
            folder = folder.parent
        return shutil.disk_usage(folder).free

    def _manifest_path(self, name: str) -> Path:
        return self.manifests / (check_name(name).casefold().replace("/", "!").replace(":", "@") + ".json")

    def _unknown(self, name: str) -> NotFoundError:
        import difflib

        near = difflib.get_close_matches(name.casefold(), self.names(), n=1)
        hint = (
            f"did you mean {near[0]}?"
            if near
            else "`llamay list` shows what is there, `llamay pull` fetches more"
        )
        return NotFoundError(f"no model named {name} in the store ({self.root})", hint)

    def _keep(self, file: Incoming) -> File:
        size = file.path.stat().st_size
        digest = f"sha256-{file.sha256}"
        if not DIGEST.fullmatch(digest):
            raise ValueError(f"{digest!r} is not a digest")
        blob = self.blobs / digest
        with file.path.open("rb+") as handle:
            os.fsync(handle.fileno())
        file.path.chmod(0o444)
        # Also over a blob of that name: these bytes were just verified, those on the disk may be damaged.
        file.path.replace(blob)
        return File(file.name, digest, size, file.role)

    def _collect(self) -> int:
        """Delete the blobs and views that no manifest names; with one manifest unreadable, delete nothing."""
        needed: set[str] = set()
        ids: set[str] = set()
        for name in self.names():
            try:
                entry = self.get(name)
            except BrokenManifestError:
                return 0
            needed |= {file.digest for file in entry.manifest.files}
            ids.add(entry.id)
        freed = 0
        for blob in self.blobs.iterdir() if self.blobs.is_dir() else ():
            if DIGEST.fullmatch(blob.name) and blob.name not in needed:
                freed += blob.stat().st_size
                blob.unlink()
        old = time.time() - _UPLOAD_SECONDS
        for upload in self.uploads.iterdir() if self.uploads.is_dir() else ():
            with contextlib.suppress(FileNotFoundError):
                if (found := upload.stat()).st_mtime < old:
                    upload.unlink()
                    freed += found.st_size
        for view in self.views.iterdir() if self.views.is_dir() else ():
            if view.name not in ids:
                shutil.rmtree(view, ignore_errors=True)
        return freed


def _link(blob: Path, link: Path) -> None:
    try:
        link.hardlink_to(blob)
    except OSError:
        link.symlink_to(blob.resolve())


def _sync_folder(folder: Path) -> None:
    """Make renames in `folder` survive a power cut, where the platform can open folders."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
