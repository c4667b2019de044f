"""The form of the manifests of Ollama's models, in its registry and in its store."""

from __future__ import annotations

import re

MAX_BYTES = 1 << 20
LAYER = "application/vnd.ollama.image."
"""The beginning of every layer's media type; the kind follows: `model`, `adapter`, or one of `TEXTS`."""
TEXTS = ("template", "system", "license", "params", "messages")
"""Kinds of the small layers, from which a model's own defaults are made."""
DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
"""A layer's digest; older manifests have a hyphen in it."""
