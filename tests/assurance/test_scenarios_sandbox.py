"""Each scenario in a sandbox: every one that must be stopped is."""

import os

import pytest
import runner

pytest.importorskip("sandlock")

SCENARIOS = runner.load()
CATEGORIES = sorted({scenario["category"] for scenario in SCENARIOS})
#: All of them, or those that a variable names: the kernel is the same for each Python, and the
#: guard is tested with all of them elsewhere.
CHOSEN = os.environ.get("SANDBOX_SCENARIOS", "").split() or CATEGORIES


@pytest.mark.slow
@pytest.mark.parametrize("category", CHOSEN)
def test_scenarios(category):
    runner.judge_all([one for one in SCENARIOS if one["category"] == category], runner.SANDBOX)
