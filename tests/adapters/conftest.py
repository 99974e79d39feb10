"""Adapters in each place where code can run, in a directory of their own."""

import contextlib

import pytest

from fastaudit_rs import Policy


@pytest.fixture(params=["here", "sandbox"])
def place(request, tmp_path, monkeypatch):
    if request.param == "sandbox":
        pytest.importorskip("sandlock")
    monkeypatch.chdir(tmp_path)
    return request.param


@pytest.fixture
def make(request, place):
    """`make(**options)`: what the `MAKE` of the file makes of a policy and a place."""
    with contextlib.ExitStack() as stack:

        def make(**options):
            made = request.module.MAKE(Policy.preset("workspace"), place, **options)
            stack.callback(made.cleanup if hasattr(made, "cleanup") else made.close)
            return made

        yield make
