"""llamay over HTTP, in the dialects that clients already speak."""

from ._app import Application, create_app
from ._config import Config, ConfigError, add_flags, from_namespace, load_config, show_config
from ._serve import main, serve
from ._store import Profile, Recipe, Status, Store, StoredModel, StoreError

__all__ = [
    "Application",
    "Config",
    "ConfigError",
    "Profile",
    "Recipe",
    "Status",
    "Store",
    "StoreError",
    "StoredModel",
    "add_flags",
    "create_app",
    "from_namespace",
    "load_config",
    "main",
    "serve",
    "show_config",
]
