"""The model that a context file belongs to, by the weights that the file is bound to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...errors import CliError, NotFoundError
from ...options.loading import Loading

if TYPE_CHECKING:
    from llamay_kv import Manifest
    from llamay_models import Model

    from ...models import Resolved


def load_model_of(source: Path, model: str | None, loading: Loading) -> Model:
    """Load the model of a context file, with the precision that the file has unless the user asked for one."""
    import llamay_kv

    identity = llamay_kv.inspect(source).identity
    precision = identity.fields.get("precision") if identity is not None else None
    asked = click.get_current_context().get_parameter_source("kv")
    if asked is click.core.ParameterSource.DEFAULT and isinstance(precision, str):
        loading = replace(loading, kv=precision)
    return loading.load(_model_of(source, model, loading))


def _model_of(source: Path, model: str | None, loading: Loading) -> Resolved:
    """Return the model that the user named, or the one in the store with the weights of the file."""
    import llamay_kv

    from ...models import Resolved
    from ...store import Store

    digest = weights(llamay_kv.inspect(source))
    if model is not None:
        resolved = loading.resolve(model)
        if digest and resolved.sha256 and digest != resolved.sha256:
            raise CliError(
                f"{source} was made with other weights ({digest[:12]}…) than those of {resolved.name}",
                "without --model, the model is found by its weights",
            )
        return resolved
    store = Store()
    entry = store.find_digest(digest) if digest else None
    if entry is None:
        raise NotFoundError(
            f"the model of {source} is not in the store" + (f" (weights {digest[:12]}…)" if digest else ""),
            "name it with --model",
        )
    return Resolved(store.path(entry), entry.manifest.name, entry)


def known_as(manifest: Manifest) -> str | None:
    """Return the name in the store of the model that computed a snapshot."""
    from ...store import Store

    digest = weights(manifest)
    entry = Store().find_digest(digest) if digest else None
    return entry.manifest.name if entry else None


def weights(manifest: Manifest) -> str | None:
    """Return the SHA-256 of the weights that a context is bound to, hex."""
    value = manifest.identity.fields.get("weights") if manifest.identity is not None else None
    return value.hex() if isinstance(value, bytes) else value if isinstance(value, str) else None
