"""llamay over HTTP, in the dialects that clients already speak.

Other packages use the names here. The rooms below them, from the ground up: `config`, `settings` and `store`; `engine`,
`observability`, `http`, `models`, `pipeline`, `chat` and `contexts`; `services`; `openai`, `anthropic`, `ollama`,
`llamacpp` and `retrieval`; `contexts_api`; `web`; `app`. A room imports only rooms below it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llamay_server.app.application import Application, create_app
    from llamay_server.app.serving import main, serve
    from llamay_server.config import Config, ConfigError
    from llamay_server.ollama.modelfiles import modelfile, parameter_lines
    from llamay_server.ollama.recipes import RecipeError, read_recipe
    from llamay_server.settings import add_flags, from_namespace, load_config, show_config
    from llamay_server.store import Profile, Recipe, Status, Store, StoredModel, StoreError

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

# Imported when it is asked for: a program that only reads settings need not wait for the web framework.
_WHERE = {
    "app.application": ("Application", "create_app"),
    "app.serving": ("main", "serve"),
    "config": ("Config", "ConfigError"),
    "ollama.modelfiles": ("modelfile", "parameter_lines"),
    "ollama.recipes": ("RecipeError", "read_recipe"),
    "settings": ("add_flags", "from_namespace", "load_config", "show_config"),
    "store": ("Profile", "Recipe", "Status", "Store", "StoreError", "StoredModel"),
}
_MODULES = {name: module for module, names in _WHERE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
