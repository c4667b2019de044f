"""All operations, one file for each family of them.

A family has for each of its operations the method that records the operation, its meaning, its record, the values
that it keeps, and its fusions. Each module of this folder has `OPERATIONS`, may have `FUSIONS`, and has a class of
methods for `Trace`. The modules are found by listing the folder, so a new family is a new file. The stub beside this
file is for type checkers; a test writes the stub.
"""

import pkgutil
from collections.abc import Iterable
from importlib import import_module

from llamay_models.plan.recorder import Recorder
from llamay_models.plan.schema import Fusion

_MODULES = [
    import_module(f"{__name__}.{name}") for name in sorted(m.name for m in pkgutil.iter_modules(__path__))
]

TABLE = {operation.name: operation for module in _MODULES for operation in module.OPERATIONS}
"""Every operation by its name."""

FAMILIES = tuple(
    kind
    for module in _MODULES
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Recorder) and kind.__module__ == module.__name__
)

Vocabulary = type("Vocabulary", FAMILIES, {"__doc__": "The methods of all families.", "table": TABLE})


def _in_order(fusions: Iterable[Fusion]) -> tuple[Fusion, ...]:
    """Return fusions in an order in which each comes after those that it names; otherwise their order stays."""
    waiting, ready = list(fusions), list[Fusion]()
    while waiting:
        done = {f.name for f in ready}
        following = next((f for f in waiting if done.issuperset(f.after)), None)
        if following is None:
            raise ValueError(f"these fusions wait for each other: {', '.join(f.name for f in waiting)}")
        ready.append(following)
        waiting.remove(following)
    return tuple(ready)


FUSIONS = _in_order(fusion for module in _MODULES for fusion in getattr(module, "FUSIONS", ()))
"""Every fusion, each after those that it names."""
