"""A model's own defaults beside its file (Ollama's SYSTEM, PARAMETER, TEMPLATE, MESSAGE), as `run` uses them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import IntegrityError
from ..models import Resolved
from .loading import Loading
from .sampling import SAMPLING_DEFAULTS

if TYPE_CHECKING:
    from llamay_models import Model

# Ollama's names for options that have another name here.
_NAMES = {"mirostat_tau": "mirostat_ent", "mirostat_eta": "mirostat_lr"}


@dataclass(frozen=True)
class ModelDefaults:
    """A model's own defaults. Each option that the user gives takes precedence."""

    name: str
    template: str | None = None
    system: str | None = None
    messages: tuple[Mapping[str, str], ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, resolved: Resolved) -> ModelDefaults:
        """Read the defaults of a model. Raises IntegrityError where they are damaged."""
        found = resolved.settings()
        try:
            return cls(
                resolved.name,
                found.get("template"),
                found.get("system"),
                tuple(
                    {"role": str(m["role"]), "content": str(m["content"])} for m in found.get("messages", ())
                ),
                dict(found.get("parameters", {})),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise IntegrityError(f"the settings of {resolved.name} are damaged: {error}") from error

    @property
    def sampling(self) -> dict[str, Any]:
        """The sampling options, under the engine's names."""
        named = {_NAMES.get(name, name): value for name, value in self.parameters.items()}
        taken = {name: value for name, value in named.items() if name in SAMPLING_DEFAULTS}
        if isinstance(seed := named.get("seed"), int) and seed >= 0:
            taken["seed"] = seed
        return taken

    def complete_loading(self, loading: Loading) -> Loading:
        """Return `loading` with the model's context size where the user gave none."""
        size = self.parameters.get("num_ctx")
        if loading.ctx_size is not None or not isinstance(size, int) or size < 1:
            return loading
        return dataclasses.replace(loading, ctx_size=size)

    def complete_generation(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the generation options with the model's limit and stop strings where the user gave none."""
        limit, stop = self.parameters.get("num_predict"), self.parameters.get("stop", ())
        if given["max_tokens"] is None and isinstance(limit, int) and limit >= 0:
            given["max_tokens"] = limit
        given["stop"] = given["stop"] or tuple([stop] if isinstance(stop, str) else stop)
        return given

    def use_template(self, model: Model) -> None:
        """Write conversations as the model's own template does."""
        if self.template is None:
            return
        from llamay_models.chat import ChatTemplateError

        try:
            model.use_template(self.template)
        except ChatTemplateError as error:
            raise IntegrityError(f"the template of {self.name}: {error}") from error
