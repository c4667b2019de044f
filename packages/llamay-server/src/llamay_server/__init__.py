"""llamay over HTTP, in the dialects that clients already speak."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._app import Application, create_app
    from ._config import Config, ConfigError, add_flags, from_namespace, load_config, show_config
    from ._modelfile import modelfile, parameter_lines
    from ._ollama_create import RecipeError, read_recipe
    from ._serve import main, serve
    from ._store import Profile, Recipe, Status, Store, StoredModel, StoreError

__all__ = [
    "Application",
    "Config",
    "ConfigError",
    "Profile",
    "Recipe",
    "RecipeError",
    "Status",
    "Store",
    "StoreError",
    "StoredModel",
    "add_flags",
    "create_app",
    "from_namespace",
    "load_config",
    "main",
    "modelfile",
    "parameter_lines",
    "read_recipe",
    "serve",
    "show_config",
]

# Who wants the settings, or a store's words, need not wait for the web framework.
_WHERE = {
    "_app": ("Application", "create_app"),
    "_config": ("Config", "ConfigError", "add_flags", "from_namespace", "load_config", "show_config"),
    "_modelfile": ("modelfile", "parameter_lines"),
    "_ollama_create": ("RecipeError", "read_recipe"),
    "_serve": ("main", "serve"),
    "_store": ("Profile", "Recipe", "Status", "Store", "StoreError", "StoredModel"),
}
_MODULES = {name: module for module, names in _WHERE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
