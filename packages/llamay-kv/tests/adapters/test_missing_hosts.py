"""An adapter whose host is not installed says what is missing and what to install."""

import subprocess
import sys

import pytest

from llamay_kv.extras import needed_by

HOSTS = {
    "vllm": ("vllm", "vllm"),
    "sglang": ("torch", "sglang"),
    "lmcache": ("lmcache", "lmcache"),
    "transformers": ("torch", "transformers"),
    "llama_cpp": ("llama_cpp", "llama-cpp"),
}


@pytest.mark.parametrize("name", HOSTS)
def test_an_adapter_without_its_host_says_what_to_install(name):
    package, extra = HOSTS[name]
    code = f"""
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocked())
try:
    import llamay_kv.adapters.{name}
except ModuleNotFoundError as error:
    print(error)
    assert error.name == {package!r}
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == (
        f"llamay_kv.adapters.{name} needs the package {package}, which is not installed; "
        f"run: pip install 'llamay-kv[{extra}]'"
    )


def test_a_host_that_is_too_old_is_to_be_upgraded():
    with (
        pytest.raises(
            ModuleNotFoundError, match=r"needs numpy.nothing, which .* numpy lacks; run: pip install --up"
        ),
        needed_by("llamay_kv.adapters.vllm", "vllm"),
    ):
        import numpy.nothing  # noqa: F401
