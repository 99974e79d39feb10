"""Each scenario under each guard of ours: what must be stopped is, what must be allowed passes."""

from collections import Counter

import pytest
import runner

SCENARIOS = runner.load()
CATEGORIES = sorted({scenario["category"] for scenario in SCENARIOS})
#: The guard that each scenario runs under at each change; the others are for the night.
QUICK = "ours, a policy"


def test_there_are_enough():
    kinds = Counter(scenario["kind"] for scenario in SCENARIOS)
    assert kinds.total() >= 200
    assert kinds["allow"] >= 80
    keys = ("category", "kind", "name")
    names = Counter(tuple(scenario[key] for key in keys) for scenario in SCENARIOS)
    assert max(names.values()) == 1


def test_each_unclaimed_scenario_says_why():
    for scenario in SCENARIOS:
        assert ("claims" in scenario) == ("why" in scenario), scenario["name"]
        assert set(scenario.get("claims", [])) < set(runner.GUARDS)


@pytest.mark.parametrize("category", CATEGORIES)
@pytest.mark.parametrize(
    "guard",
    [
        pytest.param(guard, marks=[pytest.mark.nightly] if guard != QUICK else [])
        for guard in (runner.NONE, *runner.GUARDS)
    ],
)
def test_scenarios(category, guard):
    runner.judge_all([one for one in SCENARIOS if one["category"] == category], guard)
