"""The verbs of `llamay`, each in a module that is imported when the verb is used."""

from __future__ import annotations

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Models": {
        "pull": ("models:pull", "Fetch a model into the store."),
        "list": ("models:list_", "List the models in the store."),
        "show": ("show:show", "Show what a model is, and its licence."),
        "cp": ("create:cp", "Give a model a second name."),
        "create": ("create:create", "Make a model with a prompt and settings of its own."),
        "rm": ("models:rm", "Remove models from the store."),
        "quantize": ("quantize:quantize", "Write a model in smaller formats."),
    },
    "Answers": {
        "run": ("run:run", "Answer a prompt, or chat."),
        "embed": ("embed:embed", "Write the embeddings of texts."),
        "rerank": ("embed:rerank", "Order documents by how well they answer a query."),
        "serve": ("serve:serve", "Serve models over HTTP."),
        "ps": ("server:ps", "List the models that a running server has loaded."),
        "stop": ("server:stop", "Have a running server unload models."),
    },
    "Contexts": {
        "ctx": ("ctx.group:ctx", "Build, fork, continue, verify and compare contexts in files."),
    },
    "Proof": {
        "verify": ("verify:verify", "Prove on this machine that a model is exact."),
        "bench": ("bench:bench", "Measure a model against this machine's limits."),
    },
    "Other": {
        "config": ("config:config", "Show the settings in effect, and where each came from."),
        "doctor": ("doctor:doctor", "Check this machine and installation."),
        "completion": ("completion:completion", "Print the completion script of a shell."),
    },
}
COMMANDS: dict[str, tuple[str, str]] = {
    name: target for section in SECTIONS.values() for name, target in section.items()
}
"""By verb: where its command is (module below this package: attribute), and its line in `llamay --help`."""
ALIASES = {"chat": "run", "ls": "list"}
