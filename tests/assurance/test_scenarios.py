"""Each scenario under each guard of ours: what must be stopped is, what must be allowed passes."""

from collections import Counter

import pytest
import runner

SCENARIOS = runner.load()


def test_there_are_enough():
    kinds = Counter(scenario["kind"] for scenario in SCENARIOS)
    assert kinds.total() >= 200
    assert kinds["allow"] >= 80
    keys = ("category", "kind", "name")
    names = Counter(tuple(scenario[key] for key in keys) for scenario in SCENARIOS)
    assert max(names.values()) == 1


def test_what_is_not_claimed_says_why():
    for scenario in SCENARIOS:
        assert ("claims" in scenario) == ("why" in scenario), scenario["name"]
        assert set(scenario.get("claims", [])) < set(runner.GUARDS)


@pytest.mark.parametrize("guard", [runner.NONE, *runner.GUARDS])
def test_scenarios(guard):
    found = runner.results(SCENARIOS, [guard], {})
    wrong = [
        runner.went_wrong(scenario, guard, found[at, guard])
        for at, scenario in enumerate(SCENARIOS)
    ]
    assert [text for text in wrong if text] == []
    ran = sum(went_well is not None for went_well, _ in found.values())
    assert ran >= 200
