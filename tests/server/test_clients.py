"""Clients that people point at a server, each through a conversation with a tool, a schema and a stream.

`hatch run clients:test` installs them and runs this file; elsewhere what is not installed is skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parent / "clients"
MODULES = os.environ.get("LLAMAY_NODE_MODULES", "")


def reply(prompt: str) -> str | None:
    """What the model says: a call where a tool can help, the answer after the tool's result, else words of its own."""
    turn = prompt.rpartition("<|im_start|>user\n")[2]
    if "<|im_start|>tool\n" in prompt or "<tool_response>" in prompt:
        return "It is sunny."
    if "weather" in turn and "tools\n" in prompt:
        return '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    return None


@pytest.fixture(scope="module", params=[False, True], ids=["calls whole", "calls in parts"])
def url(request):
    from llamay_server_tests.conftest import running
    from llamay_server_tests.fake_engine import FakeModel

    with running(FakeModel(script=reply), bind_calls=request.param) as server:
        yield server.url


@pytest.mark.parametrize("script", ["openai", "anthropic", "ollama", "ai"])
def test_k03_javascript_clients(url: str, script: str, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None or not Path(MODULES, "node_modules").is_dir():
        pytest.skip(
            "LLAMAY_NODE_MODULES names no folder where the packages of clients/package.json are installed"
        )
    for file in SCRIPTS.glob("*.mjs"):
        shutil.copy(file, tmp_path)
    (tmp_path / "node_modules").symlink_to(Path(MODULES, "node_modules").resolve())
    done = subprocess.run(
        [node, f"{script}.mjs", url], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "the weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "ollama"])
def test_k03_langchain(url: str, dialect: str) -> None:
    if dialect == "openai":
        module = pytest.importorskip("langchain_openai")
        chat = module.ChatOpenAI(base_url=f"{url}/v1", api_key="unused", model="fake", max_retries=0)
    elif dialect == "anthropic":
        module = pytest.importorskip("langchain_anthropic")
        chat = module.ChatAnthropic(base_url=url, api_key="unused", model="fake", max_retries=0)
    else:
        module = pytest.importorskip("langchain_ollama")
        chat = module.ChatOllama(base_url=url, model="fake")
    from langchain_core.messages import HumanMessage, ToolMessage

    tools = chat.bind_tools([WEATHER])
    asked = HumanMessage("weather in Oslo?")
    calling = tools.invoke([asked])
    assert [(call["name"], call["args"]) for call in calling.tool_calls] == [("weather", {"city": "Oslo"})]
    answer = tools.invoke([asked, calling, ToolMessage("sunny", tool_call_id=calling.tool_calls[0]["id"])])
    assert answer.text == "It is sunny."
    assert answer.usage_metadata["total_tokens"] > 0
    streamed = "".join(
        chunk.text
        for chunk in tools.stream(
            [asked, calling, *[ToolMessage("sunny", tool_call_id=calling.tool_calls[0]["id"])]]
        )
    )
    assert streamed == "It is sunny."

    shape = {"title": "thing", "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    method = {} if dialect == "anthropic" else {"method": "json_schema"}
    assert chat.with_structured_output(shape, **method).invoke("schema") == {"n": 7}


@pytest.mark.filterwarnings("ignore")
def test_k03_litellm(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm = pytest.importorskip("litellm")
    ask = {
        "messages": [{"role": "user", "content": "weather in Oslo?"}],
        "tools": [WEATHER],
        "num_retries": 0,
    }
    for model, base in [("openai/fake", f"{url}/v1"), ("anthropic/fake", url), ("ollama_chat/fake", url)]:
        done = litellm.completion(model=model, api_base=base, api_key="unused", **ask)
        call = done.choices[0].message.tool_calls[0].function
        assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Oslo"}), model
        stream = litellm.completion(
            model=model,
            api_base=base,
            api_key="unused",
            stream=True,
            max_tokens=20,
            messages=[{"role": "user", "content": "tell"}],
        )
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream), model


def test_k03_instructor(url: str) -> None:
    instructor = pytest.importorskip("instructor")
    import openai
    from pydantic import BaseModel

    class Thing(BaseModel):
        n: int
        s: str

    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        client = instructor.from_openai(openai.OpenAI(base_url=f"{url}/v1", api_key="unused"), mode=mode)
        thing = client.create(
            model="fake",
            response_model=Thing,
            max_retries=0,
            messages=[{"role": "user", "content": "schema"}],
        )
        assert thing.n == 7, mode


def test_k03_llm(url: str, tmp_path: Path) -> None:
    pytest.importorskip("llm")
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- model_id: local\n  model_name: fake\n  api_base: {url}/v1\n  supports_schema: true\n"
    )
    environment = os.environ | {"LLM_USER_PATH": str(tmp_path), "OPENAI_API_KEY": "unused"}

    def llm(*words: str) -> str:
        done = subprocess.run(
            ["llm", *words], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    # What the stand-in says depends on the seed, and may be blank.
    assert llm("prompt", "-m", "local", "-o", "max_tokens", "20", "-o", "seed", "1", "tell").strip()
    assert json.loads(llm("prompt", "-m", "local", "--schema", "n int", "schema"))["n"] == 7
