"""Events whose arguments do harm: see `hostile.py`."""

import hostile
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st


@pytest.fixture(autouse=True)
def come_back(monkeypatch):
    monkeypatch.chdir(hostile.world.top)


@settings(
    max_examples=5000,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.binary(max_size=80))
@pytest.mark.slow
def test_a_guard_holds_whatever_the_arguments_do(data):
    hostile.judge(data)


def test_the_judge_tells_a_guard_that_does_not_hold(monkeypatch):
    lax = hostile.Policy(on_violation=print).guard(monitor_calls=False)
    monkeypatch.setattr(hostile.world, "factories", [lax])
    with pytest.raises(AssertionError):
        hostile.judge(bytes(20))
