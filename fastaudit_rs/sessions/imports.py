"""Modules that are changed as soon as they are imported."""

import contextlib
import sys
import threading
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

_lock = threading.Lock()


def when_imported(name: str, change: Callable[[Any], object]) -> None:
    """Change a module: now if it is there, else when somebody imports it.

    The function that changes it leaves one alone that it has changed already.
    """
    module = sys.modules.get(name)
    if module is not None:
        change(module)
    elif _finder.changes.get(name) is not change or _finder not in sys.meta_path:
        with _lock:
            _finder.changes[name] = change
            if _finder not in sys.meta_path:
                sys.meta_path.insert(0, _finder)


class _Finder:
    """Finds these modules, as the usual one does, and changes them once they are imported."""

    def __init__(self) -> None:
        self.changes: dict[str, Callable[[Any], object]] = {}

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        change = self.changes.get(name)
        if change is None:
            return None
        spec = PathFinder.find_spec(name, path, target)
        loader: Any = spec and spec.loader
        if loader is None:
            return None
        execute: Callable[[Any], None] = loader.exec_module

        def exec_module(module: Any) -> None:
            del loader.exec_module
            execute(module)
            change(module)
            with _lock:
                self.changes.pop(name, None)
                if not self.changes:
                    with contextlib.suppress(ValueError):
                        sys.meta_path.remove(self)

        loader.exec_module = exec_module
        return spec


_finder: Any = _Finder()
