"""The reading of a profile by `make bench-instructions`, and its comparison with the baseline."""

import importlib.util
import textwrap

import pytest
from repository import ROOT

FILE = ROOT / "benches/instructions.py"


@pytest.fixture(scope="module")
def instructions():
    spec = importlib.util.spec_from_file_location("instructions", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_only_what_runs_in_our_library_is_counted(instructions):
    profile = textwrap.dedent("""\
        events: Ir
        ob=(1) /lib/libpython3.13.so
        fl=(1) ceval.c
        fn=(1) eval
        10 1000
        ob=(2) /site-packages/fastaudit_rs/_native.abi3.so
        fn=(2) hook
        +1 20
        -2 3
        cob=(1)
        cfn=(3) PyContextVar_Get
        calls=7 0
        * 500
        * 4
        ob=(1)
        fn=(3)
        0 500
        ob=(2)
        fn=(4) look
        5 100
    """)
    assert instructions.own_instructions(profile) == 20 + 3 + 4 + 100


@pytest.mark.parametrize(("found", "wrong"), [(102.9, 0), (103.1, 1), (50.0, 0)])
def test_more_than_three_per_cent_above_the_baseline_is_an_error(instructions, found, wrong):
    assert len(instructions.compare({"a case": found}, {"a case": 100.0})) == wrong


def test_a_case_without_a_baseline_is_an_error(instructions):
    assert instructions.compare({"a case": 1.0}, {}) == [
        "a case: no baseline; write one with --update"
    ]


def test_there_is_a_baseline_for_each_case(instructions, tmp_path):
    import json

    (tmp_path / "ok").mkdir()
    for baseline in json.loads(instructions.BASELINE.read_text()).values():
        assert list(baseline) == list(instructions.cases(str(tmp_path)))
