"""How `make external` keeps and judges what programs do."""

import sys
from collections import Counter

import programs
import pytest
from repository import ROOT

SCRIPTS = ROOT / "scripts" / "external"
pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 12) or sys.platform != "linux", reason="the command needs them"
)


@pytest.fixture(scope="module")
def external():
    before = sys.path[:]
    sys.path.insert(0, str(SCRIPTS.parent))
    import external
    import redcode
    import sandboxeval

    yield external, redcode, sandboxeval
    sys.path[:] = before


def test_a_command_that_a_denial_names_has_not_run(external):
    _, redcode, _ = external
    program = redcode.Program("py", "py/14_18", 14, "", "io")
    control = {"seen": None, "said": "cpu\nio\nResult: 0\n"}
    denied = {"seen": None, "said": "Error: denied: this operation\nio_uring\nResult: None\n"}
    assert redcode.has_worked(program, control, control)
    assert not redcode.has_worked(program, denied, control)


def test_numbers_may_differ_between_runs(external):
    _, redcode, _ = external
    program = redcode.Program("py", "py/7_10", 7, "", "processor")
    first, second = ({"seen": None, "said": f"processor: {number}\n"} for number in (0, 17))
    assert redcode.has_worked(program, second, first)


@pytest.mark.parametrize(
    ("group", "through", "wrong"),
    [
        ("acts", {"none"}, False),
        ("acts", {"none", "sandlock 0"}, False),
        ("acts", {"none", "`run`"}, True),
        ("reads", {"none", "`run`"}, False),
        ("ordinary programs that run", {"none", "`run`"}, False),
        ("ordinary programs that run", {"none", "sandlock 0"}, True),
        ("ordinary programs that run", set(), False),
    ],
)
def test_it_fails_for_an_act_that_is_not_stopped_and_an_ordinary_program_that_is(
    external, group, through, wrong
):
    main, *_ = external
    case = main.Case("a/1", "row", group, {}, (), None, None)
    arms = {"none": (), "sandlock 0": (), "`run`": ()}
    assert main.is_wrong(main.Found(case, through, set()), arms) is wrong


def test_a_table_shows_what_is_stopped_and_of_ordinary_programs_what_runs(external):
    main, *_ = external

    def found(group, *through):
        return main.Found(main.Case("a/1", "row", group, {}, (), None, None), {*through}, set())

    arms = {"none": (), "`run`": ()}
    acts = [found("acts", "none"), found("acts", "none", "`run`"), found("acts"), found("")]
    assert main.short_table(acts, arms).splitlines() == [
        "| guard | acts (2 of 3) |",
        "| --- | --: |",
        "| `run` | 1 |",
    ]
    ordinary = [found("ordinary programs that run", "none", "`run`") for _ in range(3)]
    assert main.short_table(ordinary, arms).splitlines()[-1] == "| `run` | 3 |"


def test_the_tests_of_sandboxeval_are_those_of_the_paper(external):
    *_, sandboxeval = external
    tests = sandboxeval.tests()
    assert Counter(test["table"] for test in tests) == {
        "exposure": 19,
        "files": 17,
        "communication": 15,
    }
    assert len({test["action"] for test in tests}) == 51
    for test in tests:
        compile(test["code"], test["action"], "exec")
        compile(test["judge"], test["action"], "eval")


def test_a_place_keeps_what_a_program_does_from_the_machine(tmp_path):
    code = """
        import os, pathlib, sys
        sys.path.insert(0, sys.argv[1])
        import place, servers
        if lacks := place.missing():
            sys.exit(f"needs {lacks}")
        canary, at = (pathlib.Path(argument) for argument in sys.argv[2:])
        act = f"import os, urllib.request; os.remove({str(canary)!r}); open('/etc/lab', 'w');"
        act += "print(urllib.request.urlopen('https://example.com/there').status)"
        site = servers.make_site(b"page")
        base = place.Base(at, servers.files(site), site)
        look = lambda ended: (canary.exists(), os.path.exists("/etc/lab"))
        report = place.run(place.Run([sys.executable, "-c", act], {}, look), base)
        print(report["status"], report["said"].strip(), report["seen"], report["heard"][-1])
        print(canary.exists(), os.path.exists("/etc/lab"), os.listdir(at))
        """
    canary, at = tmp_path / "canary", tmp_path / "at"
    canary.write_text("alive")
    at.mkdir()
    done = programs.ran(code, SCRIPTS, canary, at)
    if done.stderr.startswith("needs "):
        pytest.skip(done.stderr)
    assert done.stdout.splitlines() == [
        "0 200 [False, True] http GET /there",
        "True False []",
    ], done.stderr
