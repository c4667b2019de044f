"""Real models and llama.cpp's files: the fixtures of the tokenizer tests."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_path = Path(__file__).parents[1] / "tokenizer" / "conftest.py"
_spec = importlib.util.spec_from_file_location("tokenizer_fixtures", _path)
assert _spec is not None
assert _spec.loader is not None
_fixtures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_fixtures)

real_models = _fixtures.real_models
llama_cpp_fixtures = _fixtures.llama_cpp_fixtures
