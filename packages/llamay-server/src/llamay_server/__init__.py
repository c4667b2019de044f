"""llamay over HTTP, in the dialects that clients already speak."""

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
