"""The interfaces that this package offers, and those of others that it uses, checked when it is imported."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

import llamay_kernels
import llamay_kv
from llamay_models.errors import InterfaceError

Version = tuple[int, int]

INTERFACE: dict[str, Version] = {"token_constraint": (1, 0)}
"""The interfaces that this package offers, each with (major, minor)."""

USES: Mapping[ModuleType, Mapping[str, Version]] = {
    llamay_kernels: {"plan": (1, 2)},
    llamay_kv: {"kv_view": (1, 0)},
}


def check(user: str, module: ModuleType, wanted: Mapping[str, Version]) -> None:
    """Compare the interfaces that `user` was written for with those that `module` offers.

    The same major version and at least the minor version are needed. Raises InterfaceError that names both
    and the command that mends it.
    """
    offered: Mapping[str, Version] = getattr(module, "INTERFACE", {})
    package = module.__name__.replace("_", "-")
    for name, (major, minor) in wanted.items():
        has = offered.get(name)
        if has is None or has[0] != major or has[1] < minor:
            offers = "does not offer it" if has is None else f"offers {has[0]}.{has[1]}"
            raise InterfaceError(
                f"{user} needs interface {name} {major}.{minor} but the installed {package} {offers}; "
                f"run: pip install --upgrade --force-reinstall {_pinned(user)} {_pinned(package)}"
            )


def _pinned(package: str) -> str:
    from importlib import metadata  # slow to import, and not needed where the packages fit

    try:
        return f"'{package}=={metadata.version('llamay-models')}'"
    except metadata.PackageNotFoundError:  # run from a source folder
        return package


for _module, _wanted in USES.items():
    check("llamay-models", _module, _wanted)
