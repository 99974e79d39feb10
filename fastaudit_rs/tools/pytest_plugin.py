"""The pytest plugin: tests under a guard. It does nothing unless it is asked to.

- The fixture ``audit_perms`` makes guards whose root is the test's ``tmp_path``.
- The marker ``audit`` runs a test under one.
- The option ``--audit`` and the ini key ``audit`` run all tests under one: ``record`` reports at
  the end what they reached outside, ``raise`` fails them.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest

from .. import AuditDenied, Guard, Network, Policy
from .._native import _govern
from .denials import lines
from .pytest_guard import (
    OF_FIXTURE,
    GuardedTest,
    kept_by_plugins,
    temporary_files_in,
    with_roots,
)
from .pytest_report import Reached, check_baseline, read_baseline, test_of, write_baseline

MODES = ("off", "record", "raise")

#: The policy of a test without one: that of a workspace, but it may write only to its temporary
#: directory, and use the network of this machine, where servers of tests listen at all addresses.
DEFAULT = Policy.preset("workspace").replace(
    write=[],
    network=Network(
        hosts=["127.0.0.0/8", "::1"],
        listen=["127.0.0.0/8", "::1", "0.0.0.0", "::"],
        lookup=False,
    ),
)


#: The same policy is that of most tests.
_with_roots = functools.lru_cache(maxsize=8)(with_roots)

#: The policies that a marker has, and the fields.
Given: TypeAlias = tuple[list[Any], dict[str, Any]]


@dataclass
class GuardedRun:
    mode: str
    base: Policy
    #: The temporary directories of pytest, if a test is to be guarded.
    factory: pytest.TempPathFactory | None = None
    #: What the marker of the next test has.
    given: Given | None = None
    #: True if the next test is to be guarded.
    is_asked: bool = False
    test: GuardedTest | None = None
    baseline: Path | None = None
    #: The entries of the baseline, if it is accepted.
    accepted: frozenset[str] = frozenset()
    #: Directories of pytest and its plugins.
    kept: tuple[Path, ...] = ()


_run: pytest.StashKey[GuardedRun] = pytest.StashKey()

#: The properties of a report about the outside operations of a test: in lines, in the marker that
#: would allow them, and in entries of a baseline.
LINE, MARKER, ENTRY = "audit", "audit_marker", "audit_entry"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fastaudit_rs", "guards of fastaudit_rs")
    group.addoption(
        "--audit",
        choices=MODES,
        help="run each test under a guard: 'record' reports what tests reached outside, "
        "'raise' fails them (default: the ini key 'audit', or off)",
    )
    group.addoption(
        "--audit-policy",
        metavar="FILE",
        help="a TOML file with the policy of these guards (default: the ini key 'audit_policy')",
    )
    group.addoption(
        "--audit-baseline",
        metavar="FILE",
        help="a file of what tests reach outside: --audit=record writes it, --audit=raise accepts "
        "what is in it",
    )
    parser.addini("audit", "run each test under a guard: off, record or raise", default="off")
    parser.addini(
        "audit_policy",
        "a TOML file with the policy of these guards, from the root directory; what tests write to "
        "their temporary directories is always allowed",
        default="",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "audit(policy=None, **fields): run the test under a guard of fastaudit_rs: of the policy "
        "(a Policy, or the name of a TOML file), else of that for all tests, with other values for "
        "these fields; audit(False) for none",
    )
    mode = config.getoption("--audit") or config.getini("audit")
    if mode not in MODES:
        raise pytest.UsageError(f"the ini key 'audit' is one of {', '.join(MODES)}, not {mode!r}")
    here = config.invocation_params.dir
    named, file = config.getoption("--audit-policy"), config.getini("audit_policy")
    said_by = "--audit-policy" if named else "the ini key 'audit_policy'"
    path = here / named if named else config.rootpath / file
    try:
        base = Policy.from_toml(path) if named or file else DEFAULT
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"{said_by}: {error}") from error
    run = GuardedRun(mode, base, kept=kept_by_plugins(config))
    baseline = config.getoption("--audit-baseline")
    if baseline and mode == "off":
        raise pytest.UsageError("--audit-baseline needs --audit=record, which writes it, or raise")
    if baseline:
        run.baseline = Path(here, baseline)
        _govern(run.baseline)
        _read(run, run.baseline)
    config.stash[_run] = run


def _read(run: GuardedRun, baseline: Path) -> None:
    """Read the baseline if it is to be accepted; otherwise check that it can be written."""
    try:
        if run.mode == "raise":
            run.accepted = read_baseline(baseline)
        elif run.mode == "record":
            check_baseline(baseline)
    except (OSError, ValueError) as error:
        is_missing = run.mode == "raise" and isinstance(error, FileNotFoundError)
        hint = "; --audit=record writes it" if is_missing else ""
        raise pytest.UsageError(f"--audit-baseline: {baseline}: {error}{hint}") from error


def _marked(item: pytest.Item, given: Given | None) -> Policy | Literal[False] | None:
    """Return the policy that the marker of a test asks for; ``False`` for none."""
    __tracebackhide__ = True
    if given is None:
        return None
    policies, fields = given
    policy, *others = policies or [None]
    if others:
        raise TypeError("the marker audit takes one policy; its fields are given by name")
    if policy is False:
        return False
    if policy is None:
        policy = item.config.stash[_run].base
    if isinstance(policy, str) and policy in Policy.PRESETS:
        policy = Policy.preset(policy)
    elif isinstance(policy, str) and policy.isidentifier():
        raise ValueError(
            f"there is no preset {policy!r}: there are {', '.join(Policy.PRESETS)}, or the name of "
            "a TOML file"
        )
    elif isinstance(policy, (str, os.PathLike)):
        policy = Policy.from_toml(item.config.rootpath / policy)
    if not isinstance(policy, Policy):
        raise TypeError(
            "the marker audit takes a Policy, the name of a preset or of a TOML file, or False, "
            f"not {policy!r}"
        )
    return policy.replace(**fields)


def _given(item: pytest.Item) -> Given | None:
    """The policies that the marker of a test has, and the fields; ``None`` without a marker."""
    marker = item.get_closest_marker("audit")
    if marker is None:
        return None
    fields = dict(marker.kwargs)
    named = [fields.pop("policy")] if "policy" in fields else []
    return [*marker.args, *named], fields


def _is_asked(item: pytest.Item, given: Given | None) -> bool:
    return item.config.stash[_run].mode != "off" if given is None else given[0] != [False]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Prepare guards before fixtures put other functions in the place of those that they need."""
    if any(_is_asked(item, _given(item)) for item in items):
        DEFAULT.guard(monitor_calls=False)
        if hasattr(config, "cache"):
            # The cache makes its directory under another name first, which a test may not.
            with contextlib.suppress(OSError):
                config.cache.mkdir("audit")
        # There is none with `-p no:tmpdir`.
        config.stash[_run].factory = getattr(config, "_tmp_path_factory", None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Note whether the test is to be guarded."""
    run = item.config.stash[_run]
    run.given = _given(item)
    run.is_asked = _is_asked(item, run.given)
    if run.is_asked and run.factory is not None:
        # It is made before fixtures, which may change the directory.
        run.factory.getbasetemp()
    try:
        return (yield)
    finally:
        run.is_asked = False


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(request: pytest.FixtureRequest) -> Generator[None, object, object]:
    """Set fixtures up outside of the guard, with temporary files where the test may write."""
    run = request.config.stash[_run]
    with contextlib.ExitStack() as around:
        if run.test is not None:
            around.enter_context(run.test.left())
        if run.is_asked and run.factory is not None:
            around.enter_context(temporary_files_in(run.factory.getbasetemp() / "tempfile"))
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    run = item.config.stash[_run]
    try:
        marked = _marked(item, run.given)
    except (OSError, TypeError, ValueError) as wrong:
        raise pytest.fail.Exception(f"@pytest.mark.audit: {wrong}", pytrace=False) from None
    if marked is False or (marked is None and run.mode == "off"):
        return (yield)
    policy = marked or run.base
    root = None if run.factory is None else run.factory.getbasetemp()
    # A doctest takes no marker.
    words = "toml" if isinstance(item, pytest.DoctestItem) else "marker"
    reached = Reached(
        test_of(item.nodeid), item.config.rootpath, run.accepted, root, words == "marker"
    )
    wide = _with_roots(policy, root, run.kept)
    on_denied: Callable[[AuditDenied], object] | None = None
    if marked is None and run.mode == "record":
        wide = wide.replace(on_violation=reached.note)
    elif marked is None and run.accepted:
        wide = wide.replace(on_violation=reached.refuse)
    else:
        on_denied = reached.note
    policies, fields = run.given or ([], {})
    # Hints leave the temporary directory out, and first lines what plugins keep.
    line = " ".join([*(["..."] if policies else []), *fields])
    worded = wide._told_in(words, policy, line, [str(place) for place in run.kept])
    test = GuardedTest(worded, on_denied)
    error: BaseException | None = None
    # Pytest's own work around a test is not the test's.
    before = vars(item).get("runtest")
    vars(item)["runtest"] = functools.partial(test.run, item.runtest)
    run.test = test
    try:
        result = yield
    except BaseException as raised:
        error = raised
        raise
    finally:
        run.test = None
        if before is None:
            del vars(item)["runtest"]
        else:
            vars(item)["runtest"] = before
        reached.gather()
        if marked is None:
            _pass_on(item, reached)
        told = lines(reached.denials, error) if run.mode != "record" or marked else []
        if error is not None and told:
            item.add_report_section("call", "audit", "\n".join(told))
    if marked is not None and reached.denials and not _expects_denials(item):
        told = lines(reached.denials, most=len(reached.denials))
        item.warn(pytest.PytestWarning("passed in spite of a denial: " + "; ".join(told)))
    if marked is None and run.mode == "raise" and reached.denials:
        # The operation was denied, and the test went on all the same.
        told = lines(reached.denials, most=len(reached.denials))
        pytest.fail("reached outside: " + "\n".join(told), pytrace=False)
    return result


def _expects_denials(item: pytest.Item) -> bool:
    """Tell whether a test speaks of denials, as `pytest.raises(AuditDenied)` does."""
    code = getattr(getattr(item, "function", None), "__code__", None)
    return code is not None and AuditDenied.__name__ in code.co_names


def _pass_on(item: pytest.Item, reached: Reached) -> None:
    """Add the outside operations of a test to its report, which workers pass on too."""
    for name, values in (
        (LINE, reached.lines),
        (MARKER, [reached.marker()]),
        (ENTRY, reached.entries),
    ):
        item.user_properties += [(name, value) for value in values if value is not None]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    run = config.stash[_run]
    if run.mode == "off":
        return
    named = config.getoption("--audit-baseline")
    terminalreporter.section("audit")
    reached = _reached(terminalreporter)
    for test, told in sorted(reached.items()):
        if told[LINE]:
            terminalreporter.line(test)
            for line in told[LINE]:
                terminalreporter.line(f"    {line}")
            for line in told[MARKER]:
                terminalreporter.line(f"    to allow it: {line}")
    if not any(told[LINE] for told in reached.values()):
        accepted = f", but for what is in {named}" if run.accepted else ""
        terminalreporter.line(f"No test reached outside{accepted}.")
    elif run.mode == "record" and run.baseline is None:
        terminalreporter.line(
            "--audit-baseline=FILE writes it to a file, which --audit=raise accepts."
        )
    if run.mode == "record" and run.baseline is not None:
        entries = {test_of(test): told[ENTRY] for test, told in reached.items()}
        count = write_baseline(run.baseline, entries)
        terminalreporter.line(f"{named}: {count} written; --audit=raise accepts them.")


def _reached(terminalreporter: Any) -> dict[str, dict[str, list[str]]]:
    """Collect from the reports the outside operations of each test that ran."""
    reached: dict[str, dict[str, list[str]]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) != "call":
                continue
            told = reached.setdefault(report.nodeid, {LINE: [], MARKER: [], ENTRY: []})
            # A test may have more than one: of subtests, or if it is run again.
            for name, value in report.user_properties:
                if name in told and value not in told[name]:
                    told[name].append(value)
    return reached


@pytest.fixture
def audit_perms(tmp_path: Path, pytestconfig: pytest.Config) -> Callable[..., Guard]:
    """Make guards for parts of a test.

    For example ``with audit_perms(network=True): ...``. Takes the fields of `Policy`. Fields that
    are not given are as for all tests; ``tmp_path`` can always be written. In a test that is
    guarded such a guard stands in place of that of the test.
    """
    run = pytestconfig.stash[_run]

    def make(*others: Any, **fields: Any) -> Guard:
        if others:
            raise TypeError(
                "audit_perms() takes the fields of a policy by name (audit_perms(network=True)), "
                f"not {others[0]!r}: presets and files are for @pytest.mark.audit"
            )
        policy = run.base.replace(**fields)
        policy = with_roots(policy, tmp_path)._told_in("fixture", policy, " ".join(fields))
        with contextlib.nullcontext() if run.test is None else run.test.left():
            return policy.guard(data=OF_FIXTURE)()

    return make
