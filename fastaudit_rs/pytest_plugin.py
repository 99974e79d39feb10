"""The pytest plugin: tests under a guard. It does nothing unless it is asked to.

- The fixture ``audit_perms`` makes guards whose root is the test's ``tmp_path``.
- The marker ``audit`` runs a test under one.
- The option ``--audit`` and the ini key ``audit`` run all tests under one: ``record`` reports at
  the end what they reached outside, ``raise`` fails them.
"""

import contextlib
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from . import AuditDenied, Guard, Network, Policy
from .permissions import MONITORING
from .pytest_guard import OF_FIXTURE, GuardedTest, temporary_files_in, with_root

MODES = ("off", "record", "raise")

#: What a test may do where nobody says otherwise: what code of a workspace may, but write only to
#: its temporary directory, and use the network of this machine, where servers of tests listen at
#: all addresses.
DEFAULT = Policy.preset("workspace").replace(
    write=[],
    network=Network(
        hosts=["127.0.0.0/8", "::1"],
        listen=["127.0.0.0/8", "::1", "0.0.0.0", "::"],
        lookup=False,
    ),
)


@dataclass
class Run:
    """A run of pytest.

    Attributes:
        mode: One of `MODES`.
        base: The policy of tests that have no other.
        factory: The temporary directories of pytest, once a guarded test asked for them.
        is_asked: Whether the test of the moment is to be guarded.
        test: The test that runs under a guard now.
    """

    mode: str
    base: Policy
    factory: pytest.TempPathFactory | None = None
    is_asked: bool = False
    test: GuardedTest | None = None


_run: pytest.StashKey[Run] = pytest.StashKey()
_PROPERTY = "audit"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--audit``, and the ini keys ``audit`` and ``audit_policy``."""
    group = parser.getgroup("fastaudit_rs", "guards of fastaudit_rs")
    group.addoption(
        "--audit",
        choices=MODES,
        help="run each test under a guard: 'record' reports what tests reached outside, "
        "'raise' fails them (default: the ini key 'audit', or off)",
    )
    parser.addini("audit", "run each test under a guard: off, record or raise", default="off")
    parser.addini(
        "audit_policy",
        "a TOML file with the policy of these guards, from the root directory; what tests write to "
        "their temporary directories is always allowed",
        default="",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Read the mode and the policy.

    Raises:
        pytest.UsageError: The ini key has no such mode, or the policy cannot be read.
    """
    config.addinivalue_line(
        "markers",
        "audit(policy=None, **fields): run the test under a guard of fastaudit_rs: of the policy, "
        "else of that for all tests, with other values for these fields; audit(False) for none",
    )
    mode = config.getoption("--audit") or config.getini("audit")
    if mode not in MODES:
        raise pytest.UsageError(f"the ini key 'audit' is one of {', '.join(MODES)}, not {mode!r}")
    file = config.getini("audit_policy")
    try:
        base = Policy.from_toml(config.rootpath / file) if file else DEFAULT
        config.stash[_run] = Run(mode, base)
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"the ini key 'audit_policy': {error}") from error


def _guarded(policy: Policy, root: Path, words: str, given: Iterable[str]) -> Policy:
    """The same policy for a test with this temporary directory, of which hints do not tell."""
    return with_root(policy, root)._told_in(words, policy, " ".join(given))


def _marked(item: pytest.Item) -> Policy | Literal[False] | None:
    """The policy that the marker of a test asks for; ``False`` for none."""
    marker = item.get_closest_marker("audit")
    if marker is None:
        return None
    policy, *others = marker.args or (None,)
    if others:
        raise TypeError("the marker audit takes one policy; its fields are given by name")
    if policy is False:
        return False
    if policy is None:
        policy = item.config.stash[_run].base
    if not isinstance(policy, Policy):
        raise TypeError(f"the marker audit takes a Policy or False, not {policy!r}")
    return policy.replace(**marker.kwargs)


def _is_asked(item: pytest.Item) -> bool:
    """Whether the test is to run under a guard."""
    marker = item.get_closest_marker("audit")
    if marker is None:
        return item.config.stash[_run].mode != "off"
    return marker.args[:1] != (False,)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have each test that will be guarded make its temporary directory, before its fixtures."""
    for item in items:
        names = getattr(item, "fixturenames", None)
        if _is_asked(item) and isinstance(names, list):
            names.insert(0, "tmp_path_factory")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Note whether the test is to be guarded."""
    run = item.config.stash[_run]
    run.is_asked = _is_asked(item)
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
        result = yield
    if isinstance(result, pytest.TempPathFactory):
        run.factory = result
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test under the guard that it or the run asks for."""
    marked = _marked(item)
    run = item.config.stash[_run]
    if marked is False or (marked is None and run.mode == "off"):
        return (yield)
    policy = marked or item.config.stash[_run].base
    if run.factory is not None:
        marker = item.get_closest_marker("audit")
        given = [] if marker is None else ["..." for _ in marker.args] + [*marker.kwargs]
        policy = _guarded(policy, run.factory.getbasetemp(), "marker", given)

    outside: list[AuditDenied] = []
    if marked is not None:
        test = GuardedTest(policy)
    elif run.mode == "record":
        test = GuardedTest(policy.replace(on_violation=outside.append))
    else:
        test = GuardedTest(policy, outside.append)
    # What pytest itself does around a test is not the test's.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(item, "runtest", partial(test.run, item.runtest))
        patch.setattr(run, "test", test)
        try:
            result = yield
        finally:
            for shown in dict.fromkeys(map(_shown, outside)):
                # With the report of the test, which workers pass on too.
                item.user_properties.append((_PROPERTY, shown))
    if outside and run.mode == "raise":
        # It was denied, and the test went on all the same.
        pytest.fail("reached outside: " + "; ".join(map(_shown, outside)), pytrace=False)
    return result


def _shown(denied: AuditDenied) -> str:
    what = denied.path or denied.command or denied.callee
    return denied.event if what is None else f"{denied.event} {what}"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say which tests reached outside."""
    if config.stash[_run].mode == "off":
        return
    reached: dict[str, list[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                own = [what for name, what in report.user_properties if name == _PROPERTY]
                if own:
                    reached[report.nodeid] = own
    terminalreporter.section("audit")
    if not reached:
        terminalreporter.line("No test reached outside.")
    for test, own in sorted(reached.items()):
        terminalreporter.line(test)
        for what in own:
            terminalreporter.line(f"    {what}")


@pytest.fixture
def audit_perms(tmp_path: Path, pytestconfig: pytest.Config) -> Callable[..., Guard]:
    """Make guards for parts of a test.

    For example ``with audit_perms(network=True): ...``. Takes the fields of `Policy`. What is not
    given is as for all tests; ``tmp_path`` can always be written. In a test that is guarded such a
    guard stands in place of that of the test.
    """
    run = pytestconfig.stash[_run]

    def make(**fields: Any) -> Guard:
        policy = _guarded(run.base.replace(**fields), tmp_path, "fixture", fields)
        with contextlib.nullcontext() if run.test is None else run.test.left():
            return policy.guard(data=OF_FIXTURE, monitor_calls=MONITORING)()

    return make
