"""Options for loading a model, and loading it by them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from ..console.progress import Mode
from ..errors import WrongUsageError
from .shared import kv_option, offline_option, progress_option, threads_option

if TYPE_CHECKING:
    from llamay_models import Model

    from ..models import Resolved

F = TypeVar("F", bound=Callable[..., Any])


def model_options(command: F) -> F:
    """Add the options for loading a model."""
    for decorate in reversed(
        (
            click.option(
                "-c",
                "--ctx-size",
                type=click.IntRange(1),
                envvar=["LLAMAY_CTX_SIZE", "OLLAMA_CONTEXT_LENGTH"],
                help=_CTX_SIZE,
            ),
            threads_option(_THREADS),
            kv_option(_KV, envvar="LLAMAY_KV"),
            click.option(
                "--packed-cache",
                type=click.Path(file_okay=False, path_type=Path),
                envvar="LLAMAY_PACKED_CACHE",
                metavar="FOLDER",
                help=_PACKED_CACHE,
            ),
            click.option(
                "--lora",
                multiple=True,
                metavar="FILE[:SCALE]",
                help="Use a LoRA adapter (GGUF), or a share of it; may be repeated.",
            ),
            offline_option(),
            progress_option(),
        )
    ):
        command = decorate(command)
    return command


def engine_options(command: F) -> F:
    """Add the engine's options of verbs that generate a lot, named as the server names them: draft, memory, folders."""
    for decorate in reversed(
        (
            click.option(
                "--draft",
                metavar="MODEL",
                envvar="LLAMAY_DRAFT",
                help="A draft model (same vocabulary) for speculative decoding; no answer changes.",
            ),
            click.option(
                "--ctx-mem-budget",
                metavar="SIZE",
                envvar="LLAMAY_CTX_MEM_BUDGET",
                callback=_size,
                help="Memory for keys and values, as 512m or 4g.  [default: a quarter of the machine's]",
            ),
            click.option(
                "--ctx-spill-dir",
                metavar="DIR",
                envvar="LLAMAY_CTX_SPILL_DIR",
                help="Folder for the encrypted K/V of idle contexts when that memory does not suffice.",
            ),
            click.option(
                "--prefix-cache-dir",
                metavar="DIR",
                envvar="LLAMAY_PREFIX_CACHE_DIR",
                help="Folder that keeps the K/V of prompts for later runs.",
            ),
        )
    ):
        command = decorate(command)
    return command


_SPILL = 64 << 30


def _size(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    from llamay_server.settings import parse_bytes

    try:
        size = parse_bytes(value)
    except ValueError:
        size = 0
    if size < 1:
        raise click.BadParameter(f"{value!r} is not a size; write 512m or 4g")
    return size


_CTX_SIZE = "Tokens that a context may hold.  [default: what the model was made for]"
_THREADS = "CPU threads.  [default: one per core]"
_PACKED_CACHE = "Keep weights here as kernels read them (as large as the model): later starts are faster."
_KV = "Precision of keys and values.  [default: f16]"


@dataclass(frozen=True)
class Loading:
    """The options for loading a model."""

    ctx_size: int | None
    threads: int | None
    kv: str
    offline: bool = False
    progress: Mode = "auto"
    packed_cache: Path | None = None
    lora: tuple[str, ...] = ()
    draft: str | None = None
    ctx_mem_budget: int | None = None
    ctx_spill_dir: str | None = None
    prefix_cache_dir: str | None = None

    @classmethod
    def take(cls, options: dict[str, Any]) -> Loading:
        """Take the model options out of the options that click collected."""
        return cls(
            options.pop("ctx_size"),
            options.pop("threads"),
            options.pop("kv"),
            options.pop("offline"),
            cast(Mode, options.pop("progress")),
            options.pop("packed_cache"),
            options.pop("lora"),
            # Only some verbs have these.
            *(options.pop(name, None) for name in _ENGINE),
        )

    def resolve(self, model: str) -> Resolved:
        """Find the file that MODEL means."""
        from ..models import resolve

        return resolve(model, mode=self.progress, offline=self.offline)

    def load(self, resolved: Resolved, **more: Any) -> Model:
        """Load the model, with progress."""
        from ..console.progress import reporting

        more |= self._engine()
        with reporting(self.progress) as report:
            try:
                return load_model()(
                    resolved.path,
                    threads=self.threads,
                    kv=self.kv,
                    ctx_size=self.ctx_size,
                    packed_cache=self.packed_cache,
                    adapters=self._adapters(resolved),
                    sha256=resolved.sha256,
                    progress=report,
                    **more,
                )
            except ValueError as error:
                if type(error) is not ValueError:
                    raise  # of the file, not of an option
                # An option in its own range that this model does not allow.
                raise WrongUsageError(str(error)) from error

    def _adapters(self, resolved: Resolved) -> list[Any]:
        """Return the model's own adapters, then those of --lora."""
        found: list[Any] = list(resolved.adapters)
        if self.lora:
            from llamay_models.adapters import read_adapter

            found += map(read_adapter, self.lora)
        return found

    def _engine(self) -> dict[str, Any]:
        """Return the options of `engine_options` as arguments of `load`."""
        found: dict[str, Any] = {}
        if self.draft is not None:
            found["draft"] = self.resolve(self.draft).path
        if self.ctx_mem_budget is not None:
            found["kv_budget"] = self.ctx_mem_budget
        if self.prefix_cache_dir is not None:
            found["disk_cache"] = self.prefix_cache_dir
        if self.ctx_spill_dir is not None:
            import llamay_kv

            Path(self.ctx_spill_dir).mkdir(mode=0o700, parents=True, exist_ok=True)
            found["spill"] = llamay_kv.Spill(self.ctx_spill_dir, _SPILL)
        return found


_ENGINE = ("draft", "ctx_mem_budget", "ctx_spill_dir", "prefix_cache_dir")


def load_model() -> Callable[..., Model]:
    """Return `llamay_models.load`, imported only now; tests put another in its place."""
    import llamay_models

    return llamay_models.load
