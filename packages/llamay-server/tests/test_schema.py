"""What the OpenAPI document promises, held against the server by schemathesis."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .test_infill import FILE, REPO, filler

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_every_route_is_described_and_every_reference_leads_somewhere(shared):
    spec = shared.client.get("/openapi.json").json()
    assert spec["openapi"].startswith("3.1")
    text = shared.client.get("/openapi.json").text
    for name in {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}:
        assert name in spec["components"]["schemas"], name
    ids = [op["operationId"] for ops in spec["paths"].values() for op in ops.values()]
    assert len(ids) == len(set(ids))
    for path, ops in spec["paths"].items():
        for op in ops.values():
            assert op["summary"].strip("."), path
            assert "default" in op["responses"]
    for path in (
        "/v1/chat/completions",
        "/v1/messages",
        "/v1/responses",
        "/api/chat",
        "/v1/contexts/{context_id}/fork",
    ):
        assert path in spec["paths"]


@pytest.mark.slow
def test_no_request_gives_a_server_error_or_an_undocumented_answer(start):
    # A model that can do all that the routes offer: what it lacks would be a 501.
    server = start(filler(fill_repo=REPO, fill_file=FILE))
    tool = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.skip("schemathesis is not installed")
    command = [
        tool,
        "run",
        f"{server.url}/openapi.json",
        "--checks",
        CHECKS,
        "--phases",
        "coverage,fuzzing,stateful",
    ]
    command += [
        "-n",
        "8",
        "--seed",
        "1",
        "--exclude-path-regex",
        "/api/(pull|copy|delete|create)|/props",
        "--no-color",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
