"""Loading a model with the settings of a server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import llamay_kv
import llamay_models
from llamay_server.config import Config, ConfigError
from llamay_server.engine.model import ServedModel
from llamay_server.engine.protocol import Loader, Progress
from llamay_server.engine.snapshot_key import read_key


def load(config: Config) -> Loader:
    """Return a loader with this configuration's settings. Raises `ConfigError` where they cannot be used."""
    key = read_key(config.ctx_key) if config.ctx_key else None
    try:
        llamay_models.engine.Stall.parse(config.max_stall)
    except ValueError as e:
        raise ConfigError(str(e)) from None
    # One folder and one budget for all models, which may load at the same time.
    disk = None
    if config.prefix_cache_dir:
        disk = llamay_kv.DiskCache(
            config.prefix_cache_dir,
            budget_bytes=config.prefix_cache_disk,
            min_free_bytes=config.prefix_cache_free,
            ram_bytes=config.prefix_cache_ram,
            key=key,
        )

    def loader(
        path: Path,
        *,
        progress: Progress | None = None,
        draft: Path | None = None,
        adapters: Sequence[tuple[Path, float]] = (),
    ) -> ServedModel:
        # An adapter of scale 0 is opened, too: a request may set its scale later.
        opened = [llamay_models.adapters.Adapter.open(*each) for each in adapters]
        model = llamay_models.load(
            path,
            threads=config.threads or None,
            kv=config.kv,  # type: ignore[arg-type]
            ctx_size=config.ctx_size or None,
            kv_budget=config.ctx_mem_budget or None,
            spill=_spill(config, key),
            prefix_cache=None if config.prefix_cache < 0 else config.prefix_cache,
            disk_cache=disk,
            packed_cache=config.packed_cache or None,
            max_stall=config.max_stall,
            draft=draft,
            adapters=opened,
            progress=progress,
        )
        return ServedModel(model, key, strict=config.profile == "enterprise", adapters=opened)

    return loader


def _spill(config: Config, key: llamay_kv.Key | None) -> llamay_kv.Spill | None:
    if not config.ctx_spill_dir:
        return None
    Path(config.ctx_spill_dir).mkdir(mode=0o700, parents=True, exist_ok=True)
    return llamay_kv.Spill(config.ctx_spill_dir, config.ctx_spill, key=key)
