"""The things that a step shows, as data: figures, frames, anything with a display of its own."""

import base64
import contextlib
import functools
import importlib
import io
import json
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any
from weakref import WeakKeyDictionary

from .._native import _in_tool
from .charts import CHART, chart
from .forms import class_name, exact_bytes

#: The number of things that a step may show, and their bytes.
COUNT, BYTES = 100, 10_000_000

#: Methods of objects that display themselves, as IPython calls them, and the types of their data.
METHODS = {
    "_repr_html_": "text/html",
    "_repr_png_": "image/png",
    "_repr_svg_": "image/svg+xml",
    "_repr_markdown_": "text/markdown",
    "_repr_latex_": "text/latex",
}

#: The characters of a `repr()` that is shown.
TEXT = 10_000

#: The things that the step of this context shows.
shown_here: "ContextVar[Shown | None]" = ContextVar("fastaudit_rs_shown", default=None)

#: The modules that show things by functions of their own.
_PYPLOT, _IPYTHON = "matplotlib.pyplot", "IPython.core.display_functions"


def bundle(value: object) -> dict[str, str | bytes] | None:
    """The display of an object, with ``"text/plain"``; ``None`` if it is its `repr()` alone."""
    kind: Any = type(value)
    found: dict[str, str | bytes] = {}
    figures: Any = sys.modules.get("matplotlib.figure")
    if figures is not None and isinstance(value, getattr(figures, "Figure", ())):
        found = _of_figure(value)
    elif not issubclass(kind, type):
        with contextlib.suppress(Exception):
            given = kind._repr_mimebundle_(value)
            _put_all(found, given[0] if isinstance(given, tuple) else given)
        for name, mime in METHODS.items():
            if mime not in found:
                with contextlib.suppress(Exception):
                    _put(found, mime, getattr(kind, name)(value))
    if not found:
        return None
    found.setdefault("text/plain", plain(value))
    return found


def plain(value: object) -> str:
    """Return the `repr()` of an object, or why there is none; not longer than is shown."""
    try:
        text = str.__str__(repr(value))
    except Exception as failed:
        text = f"<repr() raised {class_name(type(failed))}>"
    return text if len(text) <= TEXT else f"{text[:TEXT]}…"


def _shown() -> "Shown | None":
    """The things that the step of this context shows; ``None`` in a tool that it calls."""
    return None if _in_tool() else shown_here.get()


class Shown:
    """The things that a step shows, up to a limit."""

    def __init__(self, most: int = BYTES) -> None:
        self._most = most
        self._kept: list[dict[str, str | bytes]] = []
        self._left = most
        self._cut = 0
        #: The figure that the step ended with, which is shown already.
        self._last: object = None

    def begin(self) -> None:
        """Begin a step in this context, without things that it showed."""
        self._kept, self._left, self._cut = [], self._most, 0
        shown_here.set(self)
        watch()

    def end(self) -> list[dict[str, str | bytes]]:
        shown_here.set(None)
        kept, self._kept, self._last = self._kept, [], None
        if self._cut:
            noun = "thing" if self._cut == 1 else "things"
            limit = f"{COUNT} of {self._most / 1_000_000:g} MB"
            kept.append({"text/plain": f"({self._cut} more {noun} left out: at most {limit})"})
        return kept

    def add(self, value: object) -> None:
        """Show the value of a step if it has a display besides its `repr()`."""
        found = bundle(value)
        if found is not None:
            self._keep(found)
            self._last = value

    def display(self, *values: object, raw: bool = False, **options: object) -> None:
        """The function ``display`` of steps; `raw` shows dictionaries from MIME types."""
        for value in values:
            found: dict[str, str | bytes] = {}
            if raw:
                _put_all(found, value)
            self._keep(found or bundle(value) or {"text/plain": plain(value)})

    def figures(self) -> None:
        """Show the figures of pyplot that the step left open, and close them."""
        for manager in list(_figures.get(self, {}).values()):
            figure = manager.canvas.figure
            try:
                if figure is not self._last:
                    self._keep({**_of_figure(figure), "text/plain": plain(figure)})
            finally:
                sys.modules[_PYPLOT].close(figure)

    def _keep(self, found: dict[str, str | bytes]) -> None:
        size = sum(len(data) for data in found.values())
        if len(self._kept) >= COUNT or size > self._left:
            self._cut += 1
            return
        self._left -= size
        self._kept.append(found)


def _put_all(found: dict[str, str | bytes], given: Any) -> None:
    if issubclass(type(given), dict):
        for mime, data in dict.items(given):
            # A malformed entry does not hide the others.
            with contextlib.suppress(Exception):
                _put(found, mime, data)


def _put(found: dict[str, str | bytes], mime: Any, data: Any) -> None:
    if not issubclass(type(mime), str):
        return
    name, kind = str.__str__(mime)[:100], type(data)
    if issubclass(kind, str):
        text = str.__str__(data)
        found[name] = base64.b64decode(text) if name == "image/png" else text
    elif issubclass(kind, (bytes, bytearray)):
        if name == "image/png":
            found[name] = exact_bytes(data)
    elif issubclass(kind, (dict, list)):
        found[name] = json.dumps(data)


def _of_figure(figure: Any) -> dict[str, str | bytes]:
    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    found: dict[str, str | bytes] = {"image/png": file.getvalue()}
    with contextlib.suppress(Exception):
        data = chart(figure)
        if data is not None:
            found[CHART] = data
    return found


#: The managers of figures that steps have open in pyplot, by their numbers, for their displays.
_figures: "WeakKeyDictionary[Shown, OrderedDict[Any, Any]]" = WeakKeyDictionary()


class _Figures:
    """The figures that pyplot has open: those of a step for its code, the others for all else."""

    def __init__(self, others: "OrderedDict[Any, Any]") -> None:
        self._others = others

    def _here(self) -> "OrderedDict[Any, Any]":
        shown = _shown()
        return self._others if shown is None else _figures.setdefault(shown, OrderedDict())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._here(), name)

    def __getitem__(self, number: Any) -> Any:
        return self._here()[number]

    def __setitem__(self, number: Any, manager: Any) -> None:
        self._here()[number] = manager

    def __delitem__(self, number: Any) -> None:
        del self._here()[number]

    def __contains__(self, number: object) -> bool:
        return number in self._here()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._here())

    def __len__(self) -> int:
        return len(self._here())


def watch() -> None:
    """Have pyplot's figures of steps drawn to memory, and take what they display by IPython.

    No window opens, and nothing waits for one. Other code of the process keeps the packages as they
    are. A module that is imported later is changed when it is.
    """
    _when_imported(_PYPLOT, _take_over)
    _when_imported(_IPYTHON, _take_display)


def _take_display(functions: Any) -> None:
    """Replace IPython's function ``display``, which publishes by the shell, or prints."""
    if hasattr(functions, "_fastaudit_rs") or not hasattr(functions, "DisplayHandle"):
        return
    given: Callable[..., Any] = functions.display

    @functools.wraps(given)
    def display(*values: Any, **options: Any) -> Any:
        shown = _shown()
        if shown is None:
            return given(*values, **options)
        shown.display(*values, **options)
        name = options.get("display_id")
        # Updates of it are shown as things of their own.
        return functions.DisplayHandle(None if name is True else name) if name else None

    # Modules that were imported before have their own references.
    for module in map(sys.modules.get, (_IPYTHON, "IPython.display", "IPython.core.display")):
        if module is not None and vars(module).get("display") is given:
            vars(module)["display"] = display
    functions._fastaudit_rs = True


def _take_over(pyplot: Any) -> None:
    """Replace the functions of pyplot that make a window and show it, and its list of figures."""
    if hasattr(pyplot, "_fastaudit_rs") or not hasattr(pyplot, "new_figure_manager"):
        return
    make: Callable[..., Any] = pyplot.new_figure_manager
    show: Callable[..., Any] = pyplot.show

    def new_figure_manager(*args: Any, **kwargs: Any) -> Any:
        shown = _shown()
        if shown is None:
            return make(*args, **kwargs)
        memory: Any = importlib.import_module("matplotlib.backends.backend_agg")
        return memory.new_figure_manager(*args, **kwargs)

    def show_figures(*args: Any, **kwargs: Any) -> Any:
        shown = _shown()
        if shown is None:
            return show(*args, **kwargs)
        shown.figures()
        return None

    managers: Any = importlib.import_module("matplotlib._pylab_helpers").Gcf
    managers.figs = _Figures(managers.figs)
    for ours, given in ((new_figure_manager, make), (show_figures, show)):
        ours.__name__, ours.__doc__ = given.__name__, given.__doc__
    pyplot.new_figure_manager = new_figure_manager
    pyplot.show = show_figures
    pyplot._fastaudit_rs = True


_changing = threading.Lock()


def _when_imported(name: str, change: Callable[[Any], object]) -> None:
    """Change a module, now or when it is imported; one that is changed already is left alone."""
    module = sys.modules.get(name)
    if module is not None:
        change(module)
    elif _finder.changes.get(name) is not change or _finder not in sys.meta_path:
        with _changing:
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
            with _changing:
                self.changes.pop(name, None)
                if not self.changes:
                    with contextlib.suppress(ValueError):
                        sys.meta_path.remove(self)

        loader.exec_module = exec_module
        return spec


_finder: Any = _Finder()
