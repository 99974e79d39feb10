"""Each scenario in a sandbox: every one that must be stopped is."""

import pytest
import runner

pytest.importorskip("sandlock")

SCENARIOS = runner.load()
CATEGORIES = sorted({scenario["category"] for scenario in SCENARIOS})


@pytest.mark.nightly
@pytest.mark.parametrize("category", CATEGORIES)
def test_scenarios(category):
    runner.judge_all([one for one in SCENARIOS if one["category"] == category], runner.SANDBOX)
