"""As much of llama-cpp-python as its caches use, for machines on which it is not compiled."""

import sys
import types
from abc import ABC, abstractmethod


def install():
    package, llama, cache = (types.ModuleType(f"llama_cpp{n}") for n in ("", ".llama", ".llama_cache"))
    package.__path__ = []

    class LlamaState:
        def __init__(self, input_ids, scores, n_tokens, llama_state, llama_state_size, seed):
            self.input_ids, self.scores, self.n_tokens = input_ids, scores, n_tokens
            self.llama_state, self.llama_state_size, self.seed = llama_state, llama_state_size, seed

    class BaseLlamaCache(ABC):
        def __init__(self, capacity_bytes=2 << 30):
            self.capacity_bytes = capacity_bytes

        @property
        @abstractmethod
        def cache_size(self): ...

        @abstractmethod
        def __getitem__(self, key): ...

        @abstractmethod
        def __contains__(self, key): ...

        @abstractmethod
        def __setitem__(self, key, value): ...

    class Llama: ...

    llama.Llama, llama.LlamaState, cache.BaseLlamaCache = Llama, LlamaState, BaseLlamaCache
    for name in ("is_recurrent", "is_hybrid", "n_swa"):
        setattr(package, f"llama_model_{name}", lambda model: 0)
    sys.modules |= {"llama_cpp": package, "llama_cpp.llama": llama, "llama_cpp.llama_cache": cache}
