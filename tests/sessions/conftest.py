"""Sessions in each place where code can run."""

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
def make(place, tmp_path):
    """Make a session whose code may write below its directory."""
    if place == "sandbox":
        pytest.importorskip("sandlock")
    made = []
    opened = []
    directory = tmp_path / "session"
    directory.mkdir()

    def make(**options):
        if place == "here":
            options.setdefault("directory", directory)
            policy = Policy(write=[str(directory)], packages=["numpy", "pandas"])
            session = policy.session(**options)
        else:
            limits = {"output": options.pop("output")} if "output" in options else {}
            sandbox = Sandbox(limits=Limits(**limits))
            opened.append(sandbox)
            session = sandbox.session(**options)
        made.append(session)
        return session

    yield make
    for one in (*made, *opened):
        one.close()


@pytest.fixture
def session(make):
    return make()
