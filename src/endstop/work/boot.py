"""How a host starts: `python .../endstop/work/boot.py ROOT CONTROL CHANNEL`, a script, no module.

A host must be there quickly and stay small, so it does without the package's own `__init__`, which
loads nearly everything: the package is put in place unloaded, and loads itself when the first tool
asks it for a public name. Nothing here may import anything but the standard library and `host.py`.
"""

from __future__ import annotations

import os
import sys
import types
from importlib.machinery import ModuleSpec, SourceFileLoader


class _Unloaded(types.ModuleType):
    """The package before anybody has asked it for a name."""

    def __getattr__(self, name: str) -> object:
        # Everything that importing a submodule needs is there, so this is a public name.
        self.__class__ = types.ModuleType  # type: ignore[assignment]
        assert self.__spec__ is not None
        assert self.__spec__.loader is not None
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def place_package(root: str) -> None:
    """Make `endstop` importable from `root` without running its `__init__`."""
    folder = os.path.join(root, "endstop")
    path = os.path.join(folder, "__init__.py")
    spec = ModuleSpec("endstop", SourceFileLoader("endstop", path), origin=path, is_package=True)
    spec.submodule_search_locations = [folder]
    spec.has_location = True
    package = _Unloaded("endstop")
    package.__spec__ = spec
    package.__file__ = path
    package.__path__ = [folder]
    package.__package__ = "endstop"
    package.__loader__ = spec.loader
    sys.modules["endstop"] = package


if __name__ == "__main__":
    # A script's own folder is on the path, where `process` and `protocol` would hide other modules.
    del sys.path[0]
    place_package(sys.argv[1])
    from endstop.work.host import main

    main(int(sys.argv[2]), int(sys.argv[3]))
