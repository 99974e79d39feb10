"""Sessions in each place where code can run."""

import contextlib
import sys

import pytest

from fastaudit_rs import Limits, Policy, Sandbox

#: The places: in this process under a guard, and in a sandbox.
PLACES = ("here", "sandbox")


@pytest.fixture(autouse=True)
def kept_settings(monkeypatch):
    """Steps in this process set what other tests, and programs that they start, would see."""
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)


@pytest.fixture(params=PLACES)
def place(request):
    return request.param


@pytest.fixture
def directory(tmp_path):
    directory = tmp_path / "session"
    directory.mkdir()
    return directory


@pytest.fixture
def make(place, directory):
    """Make a session whose code may write below its directory."""
    if place == "sandbox":
        pytest.importorskip("sandlock")
    sandboxes = {}
    with contextlib.ExitStack() as stack:

        def make(**options):
            if place == "here":
                options.setdefault("directory", directory)
                one = Policy(write=[str(directory)], packages=["numpy", "pandas"])
            else:
                output = options.pop("output", "10M")
                if output not in sandboxes:
                    limits = Limits(output=output)
                    sandboxes[output] = stack.enter_context(Sandbox(limits=limits))
                one = sandboxes[output]
            return stack.enter_context(one.session(**options))

        yield make


@pytest.fixture
def session(make):
    return make()
