"""Both ways to watch calls: the tests of calls run in each."""

import sys

import pytest


def pytest_generate_tests(metafunc):
    if "side" in metafunc.fixturenames:
        is_ours = metafunc.config.getoption("--implementation") == "fastaudit_rs"
        one_side = metafunc.definition.get_closest_marker("one_side")
        sides = ["events", "callee"] if is_ours else ["events"]
        if one_side is not None:
            sides = list(one_side.args) or ["events"]
        if sys.version_info < (3, 12):
            # There are no events.
            sides = [side for side in sides if side != "events"]
        metafunc.parametrize("side", sides, indirect=True)


@pytest.fixture(autouse=True)
def side(request, monkeypatch):
    """How calls are watched: `mk_audit(calls=…)`."""
    monkeypatch.setenv("FASTAUDIT_RS_CALLS", request.param)
    return request.param
