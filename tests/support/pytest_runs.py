"""Runs of pytest that tests of the plugin start, each in a process of its own."""

from importlib.metadata import entry_points

PROLOGUE = """
import os
import pytest
OUT = {out!r}
"""

# Plugins of other packages that are installed: they take longer to load than the tests take.
OTHERS = {plugin.name for plugin in entry_points(group="pytest11")} - {"fastaudit_rs"}


def without_others(*needs):
    """The options by which pytest loads no plugin of another package but these."""
    return [f"-pno:{name}" for name in sorted(OTHERS.difference(needs))]


def runner(pytester, out):
    """`run(code, *options)`: the result of a run of pytest on it. `OUT` is `out` there."""

    def run(code, *options, needs=()):
        pytester.makepyfile(test_it=PROLOGUE.format(out=out) + code)
        others = without_others(*needs)
        return pytester.runpytest_subprocess("-pno:cacheprovider", *others, *options)

    return run
