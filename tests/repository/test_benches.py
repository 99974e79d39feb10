"""Figures, goals, the table and the pictures that the benchmark makes of measured times."""

import sys
from xml.etree import ElementTree

import pytest
from repository import ROOT

BENCHES = ROOT / "benches"


@pytest.fixture(autouse=True, scope="module")
def path():
    sys.path.insert(0, str(BENCHES))
    yield
    sys.path.remove(str(BENCHES))


@pytest.fixture(scope="module")
def cases(path):
    import cases

    return cases


@pytest.fixture(scope="module")
def figures(path):
    import figures

    return figures


@pytest.fixture
def rounds(cases):
    """Made-up times: bare takes 100 ns, ours 10 more, the floor 20, the original 1000."""
    more = {"bare": 0, "0.1.0": 1000, "0.2.10": 2000, "ours": 10, "ours 0.2": 20, "floor": 20}
    return {
        name: {case.key: [100.0 + extra, 101.0 + extra] for case in cases.CASES}
        for name, extra in more.items()
    }


def test_net_times_and_ratios(cases, figures, rounds):
    case = cases.CASES[0]
    assert figures.net(rounds, case, "ours") == [10, 11]
    assert figures.ratio(rounds, case, "0.1.0")["ratio"] == 0.01
    assert figures.ratio(rounds, case, "floor")["ratio"] == 0.5
    assert figures.ratio({"ours": {}, "floor": {}}, case, "floor") is None


@pytest.mark.parametrize(
    ("takes", "is_as_far"), [(20.0, True), (21.9, True), (22.1, False), (None, None)]
)
def test_how_far_ahead_the_rules_of_0_2_are(cases, figures, rounds, takes, is_as_far):
    case = cases.CASES[0]
    rounds["ours 0.2"][case.key] = [] if takes is None else [100.0 + takes] * 2
    assert figures.is_as_far_ahead(rounds, case) is is_as_far


@pytest.mark.parametrize(("limit", "holds"), [(0.011, True), (0.009, False)])
def test_goals_of_a_ratio(cases, figures, rounds, limit, holds):
    case = cases.Case("event", "an event", cases.Goal(limit, "0.1.0"))
    assert figures.holds(rounds, case) is holds


@pytest.mark.parametrize(("limit", "holds"), [(11, True), (9, False)])
def test_goals_in_nanoseconds(cases, figures, rounds, limit, holds):
    case = cases.Case("event", "an event", cases.Goal(limit))
    assert figures.holds(rounds, case) is holds


def test_ratios_to_the_bare_time_are_of_whole_times(cases, figures, rounds):
    case = cases.Case("work", "work", cases.Goal(1.09, "bare"), net=False)
    assert figures.ratio(rounds, case, "bare")["ratio"] == 1.1
    assert figures.holds(rounds, case) is False


def test_programs_count_by_their_geometric_mean(cases, figures):
    times = {"ours": {name: [1.0, 4.0] for name in cases.PROGRAMS}}
    times["ours"][cases.PROGRAMS[0]] = [2.0**8, 4.0]
    assert figures.with_programs(times)["ours"]["programs"] == pytest.approx([2.0, 4.0])


def test_the_table_has_each_case(cases, figures, rounds):
    lines = figures.markdown(rounds).splitlines()[2:]
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines] == [
        case.title for case in cases.CASES
    ]
    missed = [line.split(" | ")[6].removesuffix(" |") for line in lines]
    assert missed == [
        str(case.goal) if figures.holds(rounds, case) is False else "" for case in cases.CASES
    ]


def test_the_page_has_the_table_that_was_measured(cases, figures):
    import json

    text = (BENCHES.parent / "docs/performance.md").read_text()
    _, rest = text.split("<!-- make bench: begin -->")
    shown, _ = rest.split("<!-- make bench: end -->")
    version = shown.split("Python ")[1].split(",")[0]
    file = BENCHES / f"results/{version.rpartition('.')[0]}.json"
    measured = figures.with_programs(json.loads(file.read_text())["nanoseconds"])
    assert figures.markdown(measured) in shown


def test_the_picture_shows_each_case_that_is_net(cases, rounds):
    import picture

    root = ElementTree.fromstring(picture.overhead(rounds))
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    for case in cases.CASES:
        assert (case.title.replace("`", "") in texts) is case.net


def test_times_are_shown_with_their_unit(cases):
    assert [cases.show(time) for time in (7, 1234, 56_789, 4_000_000, 2e9)] == [
        "7 ns",
        "1.23 µs",
        "56.8 µs",
        "4.00 ms",
        "2.00 s",
    ]
