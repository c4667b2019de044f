"""The official clients' own suites, pointed at a server.

They are not on an index as packages, only in the clients' source archives: unpack these into one folder and name it in
LLAMAY_SDK_SUITES, and run in an environment that has what the suites import (pytest-asyncio, respx and the like).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITES = os.environ.get("LLAMAY_SDK_SUITES", "")

# file of a suite: what of it is left out, and why
OPENAI = {
    "chat/test_completions.py": {
        "retrieve or update or list or delete": "stored chat completions are not built",
    },
    "test_completions.py": {"all_params": "sets suffix, and the model cannot fill in the middle"},
    "test_decisions.py": {},
    "test_embeddings.py": {
        "(strict or aiohttp) and create": "asks for base64, and validates the answer as numbers before it decodes it"
    },
    "test_models.py": {"delete": "models are not deleted by this route"},
    "test_responses.py": {
        "retrieve or delete or cancel": "asks for a response that was never made: 404",
        "compact": "compacting is not built",
        "create_with_all_params": "sets conversation and prompt, which are refused by name",
    },
    "responses/test_input_items.py": {"list": "asks for a response that was never made: 404"},
    "responses/test_input_tokens.py": {"all_params": "sets conversation, which is refused by name"},
}
ANTHROPIC = {
    "test_messages.py": {
        "create_with_all_params": "its tool has no JSON schema: a property is described by the text 'bar'"
    },
    "test_models.py": {},
    "beta/test_messages.py": {"all_params": "sets mcp_servers and fallbacks, which are refused by name"},
}


@pytest.fixture(scope="module")
def url():
    from llamay_server_tests.conftest import running
    from llamay_server_tests.fake_engine import FakeModel

    with running(FakeModel(), single_model=True) as server:
        yield server.url


def run(folder: str, name: str, left_out: dict[str, str], url: str) -> None:
    found = [path for path in sorted(Path(SUITES).glob(folder)) if path.is_dir()] if SUITES else []
    if not found:
        pytest.skip("LLAMAY_SDK_SUITES names no folder with the unpacked source archives")
    if not (found[-1] / "tests" / "api_resources" / name).is_file():
        pytest.skip(f"{found[-1].name} has no {name}")
    wanted = " and ".join(f"not ({expression})" for expression in left_out)
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-p", "no:schemathesis"]
    done = subprocess.run(
        [*command, *(["-k", wanted] if wanted else []), f"tests/api_resources/{name}"],
        cwd=found[-1],
        env=os.environ | {"TEST_API_BASE_URL": url},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    nothing_left = 5
    assert done.returncode in (0, nothing_left), done.stdout[-4000:]


@pytest.mark.slow
@pytest.mark.parametrize("name", OPENAI)
def test_k01_the_openai_suite_passes(url, name):
    run("openai-*", name, OPENAI[name], f"{url}/v1")


@pytest.mark.slow
@pytest.mark.parametrize("name", ANTHROPIC)
def test_k02_the_anthropic_suite_passes(url, name):
    run("anthropic-*", name, ANTHROPIC[name], url)
