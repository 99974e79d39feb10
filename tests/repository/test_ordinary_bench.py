"""What `make ordinary` and `make bench-ordinary` write, and that the latter measures."""

import importlib.util
import sys

import pytest
from repository import ROOT, TESTS


@pytest.fixture(scope="module")
def bench():
    paths = [str(ROOT / "benches"), str(TESTS / "ordinary")]
    sys.path[:0] = paths
    import ordinary

    yield ordinary
    for path in paths:
        sys.path.remove(path)


def times(bench, **of_notebook):
    """Made-up times of a snippet, which are the same bare again."""
    return {bench.BARE: [2.0, 1.0, 9.0], bench.AGAIN: [2.0, 2.0, 2.0], **of_notebook}


def test_ratios_are_of_medians_and_words_stay(bench):
    found = bench.ratios(times(bench, a=[3.0, 100.0, 2.0], b="denied"))
    assert found == {bench.AGAIN: 1.0, "a": 1.5, "b": "denied"}
    assert bench.ratios({"missing": "no module", bench.BARE: "denied"}) == {}


def test_only_what_passed_counts(bench):
    measured = {"x": times(bench, a=[3.0]), "y": times(bench, a="denied")}
    assert bench.over_all(measured, "a") == [1.5]
    rows = bench.table(measured, [bench.BARE, bench.AGAIN, "a"]).splitlines()
    assert rows[2] == "| **snippets that passed** | 2 | 2 | 1 |"
    assert rows[3] == "| **median** |  | 1.00 | 1.50 |"
    assert rows[6:] == ["| x | 2000.0 ms | 1.00 | 1.50 |"]


def test_the_slowest_are_shown(bench):
    measured = {f"n{number}": times(bench, a=[float(number)]) for number in range(1, 30)}
    rows = bench.table(measured, [bench.BARE, bench.AGAIN, "a"]).splitlines()[6:]
    assert [row.split()[1] for row in rows] == [f"n{number}" for number in range(29, 26, -1)]


@pytest.mark.parametrize(
    ("again", "preset", "said"),
    [
        (2.0, 2.03, None),
        (2.0, 2.06, "the median under the preset is 1.030"),
        (2.05, 2.0, "bare beside itself is at 1.025"),
        (1.95, 2.0, "bare beside itself is at 0.975"),
        (2.0, "denied", None),
    ],
)
def test_the_goal(bench, again, preset, said):
    found = [preset] if isinstance(preset, float) else preset
    measured = {"x": {bench.BARE: [2.0], bench.AGAIN: [again], bench.corpus.NOTEBOOK: found}}
    missed = bench.missed(measured)
    assert missed is None if said is None else missed.startswith(said)


def test_a_snippet_is_measured_under_each_kind(bench):
    snippet = {"name": "made up", "packages": [], "code": "assert sum(range(10000)) == 49995000"}
    denied = {**snippet, "code": "import os\nos.system('true')"}
    kinds = [bench.BARE, bench.AGAIN, bench.corpus.NOTEBOOK]
    with bench.corpus.setting() as place:
        found = bench.measure(snippet, kinds, 2, place)
        stopped = bench.measure(denied, kinds, 1, place)
    assert set(found) == set(kinds)
    assert all(len(each) == 2 and min(each) > 0 for each in found.values())
    assert stopped[bench.corpus.NOTEBOOK] == "denied"
    assert isinstance(stopped[bench.BARE][0], float)


def test_verdicts_are_counted_for_each_time_of_importing(bench):
    spec = importlib.util.spec_from_file_location("snippets", ROOT / "scripts" / "ordinary.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    guards = ["0.1.0", "mk_audit", bench.corpus.NOTEBOOK]
    found = {
        (name, guard, when): (verdict, "")
        for name, *verdicts in (
            ("a", "denied", "denied", "pass", "pass"),
            ("b", "denied", "denied", "denied", "denied"),
            ("c", "pass", "hang", "pass*", "pass*"),
            ("d", "pass", "pass", "pass", "pass"),
        )
        for (guard, when), verdict in zip(
            [(guard, when) for guard in guards for when in bench.corpus.WHENS],
            [*verdicts, "pass", "pass"],
            strict=True,
        )
    }
    assert script.counts(guards, found).splitlines()[2:] == [
        "| fastaudit 0.1.0 | 2 / 1 | 0 | 2 | 0 / 1 |",
        '| `mk_audit(["."])` | 2 | 1 | 1 | 0 |',
        '| `Policy.preset("notebook")` | 4 | 0 | 0 | 0 |',
    ]
