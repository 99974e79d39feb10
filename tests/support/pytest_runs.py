"""Runs of pytest that tests of the plugin start, each in a process of its own."""

PROLOGUE = """
import os
import pytest
OUT = {out!r}
"""

# They take longer to load than the tests take.
OTHERS = ("asyncio", "cov", "hypothesispytest", "xdist")


def runner(pytester, out):
    """`run(code, *options)`: the result of a run of pytest on it. `OUT` is `out` there."""

    def run(code, *options, needs=()):
        pytester.makepyfile(test_it=PROLOGUE.format(out=out) + code)
        without = [f"-pno:{name}" for name in OTHERS if name not in needs]
        return pytester.runpytest_subprocess("-pno:cacheprovider", *without, *options)

    return run
