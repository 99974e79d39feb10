"""Each scenario in a sandbox: every one that must be stopped is."""

import os

import pytest
import runner

pytest.importorskip("sandlock")

#: All of them; or those of the categories that a variable names: the kernel is the same for each
#: Python, and the guard is tested with all of them elsewhere.
CATEGORIES = os.environ.get("SANDBOX_SCENARIOS", "").split()
SCENARIOS = [one for one in runner.load() if not CATEGORIES or one["category"] in CATEGORIES]


def test_scenarios():
    found = runner.results(SCENARIOS, [runner.SANDBOX], {})
    wrong = [
        runner.went_wrong(scenario, runner.SANDBOX, found[at, runner.SANDBOX])
        for at, scenario in enumerate(SCENARIOS)
    ]
    assert [text for text in wrong if text] == []
    assert sum(went_well is not None for went_well, _ in found.values()) >= (
        30 if CATEGORIES else 200
    )
