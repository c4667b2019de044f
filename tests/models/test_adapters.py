"""LoRA adapters against llama.cpp: the same files, the same scale, the same distribution of the next token."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from llamay_models import gguf, load

sys.path.insert(0, str(Path(__file__).parent))
from llamacpp_peer import ask

DATA = Path(os.environ["LLAMAY_TEST_DATA"])
STORIES = DATA / "models" / "stories260K.gguf"
pytestmark = pytest.mark.skipif(not STORIES.is_file(), reason=f"{STORIES} is not there")
PROMPTS = ["Once upon a time, there was a little", "Lily and her dog went to the"]
PEER = """
import json, sys, xllamacpp
model, adapter, scale, prompts = json.loads(sys.argv[1])
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx = model, 256
params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(adapter, scale)]
server = xllamacpp.Server(params)
for prompt in prompts:
    asked = {"prompt": prompt, "n_predict": 1, "temperature": 0, "n_probs": 8}
    answer = server.handle_completions(asked)
    print()
    print(json.dumps(answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]), flush=True)
"""


def write_adapter(path: Path) -> None:
    rng = np.random.default_rng(5)
    tensors = []
    with gguf.open(STORIES) as file:
        shapes = {n: t.shape for n, t in file.tensors.items() if len(t.shape) == 2 and n.startswith("blk.")}
    for name, (rows, cols) in shapes.items():
        for half, shape in (("a", (4, cols)), ("b", (rows, 4))):
            values = (rng.normal(size=shape) / np.sqrt(shape[1])).astype(np.float32) * 0.7
            tensors.append(gguf.TensorData(f"{name}.lora_{half}", "F32", shape, values.tobytes()))
    keys = {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora"}
    gguf.write(path, {**keys, "adapter.lora.alpha": np.float32(8)}, tensors)


def test_the_next_token_is_as_likely_as_llama_cpp_finds_it(tmp_path: Path) -> None:
    path = tmp_path / "adapter.gguf"
    write_adapter(path)
    theirs = ask(PEER, [str(STORIES), str(path), 0.5, PROMPTS])
    assert len(theirs) == len(PROMPTS)

    with load(STORIES, kv="f32", threads=1) as plain, plain.adapted([(path, 0.5)]) as model:
        for prompt, top in zip(PROMPTS, theirs, strict=True):
            logits = model.context(prompt).logits.astype(np.float64)
            ours = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
            for each in top:
                assert ours[each["id"]] == pytest.approx(each["logprob"], abs=0.02)
            assert int(np.argmax(ours)) == top[0]["id"]
            unadapted = plain.context(prompt).logits
            assert np.abs(unadapted - logits).max() > 0.3  # the adapter matters
