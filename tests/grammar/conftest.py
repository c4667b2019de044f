"""Schemas of many kinds, for real models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def schemas() -> dict[str, Any]:
    """Fifty schemas by what they describe."""
    found: dict[str, Any] = json.loads((Path(__file__).parent / "schemas.json").read_text("utf-8"))
    return found
