"""The programs of pyperformance, as functions that run them once."""

import argparse
import os
import runpy
import sys
import types
from collections.abc import Callable
from time import perf_counter
from typing import Any


def functions(directory: str, program: str, *arguments: str) -> list[Callable[[], object]]:
    """What a program would have measured. `arguments` are those of its command line."""
    found: list[Callable[[], object]] = []

    class Runner:
        """The part of `pyperf.Runner` that the programs use: it notes what is to be run."""

        def __init__(self, *_: object, **__: object) -> None:
            self.metadata: dict[str, object] = {}
            self.argparser = argparse.ArgumentParser()

        @property
        def args(self) -> Any:
            return self.argparser.parse_args(arguments)

        def parse_args(self, *_: object) -> Any:
            return self.args

        def bench_func(self, _: str, function: Any, *args: Any, **__: Any) -> None:
            found.append(lambda: function(*args))

        def bench_time_func(self, _: str, function: Any, *args: Any, **__: Any) -> None:
            found.append(lambda: function(1, *args))

    pyperf: Any = types.ModuleType("pyperf")
    pyperf.Runner, pyperf.perf_counter = Runner, perf_counter
    pyperf.python_implementation = lambda: sys.implementation.name
    sys.modules["pyperf"] = pyperf
    place = os.path.join(directory, f"bm_{program}")
    sys.path.insert(0, place)
    sys.argv = ["run_benchmark.py"]
    runpy.run_path(os.path.join(place, "run_benchmark.py"), run_name="__main__")
    sys.path.remove(place)
    return found
