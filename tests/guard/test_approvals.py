"""`on_ask`: the question before a denial, its answers, and how far each of them reaches."""

import contextlib
import functools
import importlib
import os
import shutil
import socket
import subprocess
import sys
import threading

import at_once
import programs
import pytest
from asked import Asked, write

from fastaudit_rs import AuditDenied, Network, Policy, mk_audit as make

TRUE = shutil.which("true")


@pytest.fixture
def asking(places):
    """`asking(*answers, **fields)`: guards of a policy, and the answers that they get."""

    def make(*answers, **fields):
        asked = Asked(*answers)
        policy = Policy(**{"write": [places.ok], **fields})
        return policy.guard(on_ask=asked), asked

    return make


def test_what_it_gets(asking, places):
    perms, asked = asking("deny")
    with perms() as guard, pytest.raises(AuditDenied) as denial:
        write(f"{places.out}/a")
    [denied] = asked
    assert denied is denial.value
    assert (denied.event, denied.effect, denied.path) == ("open", "write", f"{places.out}/a")
    assert denied.call_chain[-1].endswith(".write")
    assert denied.answers == ("once", "guard", "pattern", "deny", "never")
    [logged] = guard.violations
    assert logged.to_dict() == denied.to_dict()
    assert "\nAsked for approval: the answer was no\n" in str(denied)
    assert denied.answer == "the answer was no"
    again = AuditDenied.from_dict(denied.to_dict())
    assert (again.answers, again.answer) == (denied.answers, denied.answer)
    assert again.approval("pattern") == {"write": [places.out]}


@pytest.mark.parametrize(
    ("answer", "denied"), [("once", 0), (True, 0), ("deny", 2), (False, 2), (None, 2)]
)
def test_once_and_no_are_for_this_operation_alone(asking, places, answer, denied):
    perms, asked = asking(answer)
    with perms() as guard:
        for _ in range(2):
            with contextlib.suppress(AuditDenied):
                write(f"{places.out}/a")
    assert (len(asked), guard.violation_count) == (2, denied)
    assert os.listdir(places.out) == ([] if denied else ["a"])


def test_guard_is_this_file_while_the_guard_lives(asking, places):
    perms, asked = asking("guard", "deny")
    for _ in range(2):
        with perms() as guard:
            write(f"{places.out}/a")
            os.remove(f"{places.out}/a")
        assert guard.violation_count == 0
    with perms(), pytest.raises(AuditDenied):
        write(f"{places.out}/b")
    assert [denied.path for denied in asked] == [f"{places.out}/a", f"{places.out}/b"]
    # Another guard knows nothing of it.
    other, asked = asking("deny")
    with other(), pytest.raises(AuditDenied):
        write(f"{places.out}/a")
    assert len(asked) == 1


def test_pattern_is_the_directory_of_a_file(asking, places):
    perms, asked = asking("pattern", "deny")
    with perms():
        write(f"{places.out}/a")
        os.mkdir(f"{places.out}/d")
        write(f"{places.out}/d/b")
        with pytest.raises(AuditDenied):
            write(f"{places.cwd}/c")
    assert [denied.path for denied in asked] == [f"{places.out}/a", f"{places.cwd}/c"]


def test_an_answer_keeps_what_the_policy_allows_beside_it(asking, places):
    perms, asked = asking("guard", "deny")
    with perms():
        write(f"{places.out}/a")
        write(f"{places.ok}/b")
        os.rename(f"{places.ok}/b", f"{places.out}/a")
        with pytest.raises(AuditDenied):
            os.rename(f"{places.out}/a", f"{places.out}/c")
    assert len(asked) == 2


def test_a_link_that_is_made_later_is_not_approved(asking, places):
    perms, asked = asking("guard", "deny")
    target = f"{places.out}/a"
    with perms():
        write(target)
    os.remove(target)
    os.symlink(f"{places.cwd}/elsewhere", target)
    with perms(), pytest.raises(AuditDenied):
        write(target)
    assert len(asked) == 2
    assert os.listdir(places.cwd) == []


def test_what_is_blocked_or_protected_stays_so(asking, places):
    secret = f"{places.out}/secret"
    os.mkdir(secret)
    perms, asked = asking("pattern", block=[secret])
    with perms():
        write(f"{places.out}/a")
        with pytest.warns(RuntimeWarning, match="counts as 'once'"):
            write(f"{secret}/a")
        with pytest.warns(RuntimeWarning, match="counts as 'once'"):
            write(f"{places.out}/.bashrc")
    assert [denied.answers for denied in asked[1:]] == [("once", "deny")] * 2
    assert [denied.approval("guard") for denied in asked[1:]] == [None, None]


def test_a_blocked_module_is_imported_once(asking, monkeypatch, places):
    for name in ("approvals_one", "approvals_two"):
        with open(f"{places.ok}/{name}.py", "w") as file:
            file.write("X = 1\n")
    monkeypatch.syspath_prepend(places.ok)
    blocked = {"allow": ["approvals_two"], "block": ["approvals_one"]}
    perms, asked = asking("once", imports=blocked)
    with perms():
        import approvals_one
        import approvals_two  # noqa: F401

        assert approvals_one.X == 1
    [denied] = asked
    assert (denied.event, denied.answers) == ("import", ("once", "deny"))


def test_an_answer_to_an_import_is_for_its_packages(asking, monkeypatch, places):
    os.mkdir(f"{places.ok}/approvals_package")
    for name in ("__init__", "module"):
        with open(f"{places.ok}/approvals_package/{name}.py", "w") as file:
            file.write("X = 1\n")
    monkeypatch.syspath_prepend(places.ok)
    perms, asked = asking("once", "deny", imports=False)
    with perms():
        import approvals_package.module  # noqa: F401
    assert len(asked) == 1


def test_an_answer_is_for_one_import(asking, monkeypatch, places):
    with open(f"{places.ok}/approvals_again.py", "w") as file:
        file.write("X = 1\n")
    monkeypatch.syspath_prepend(places.ok)
    perms, asked = asking("once", "once", "deny", imports=False)
    with perms():
        import approvals_again

        sys.modules.pop("approvals_again")
        importlib.import_module("approvals_again")
        sys.modules.pop("approvals_again")
        with pytest.raises(AuditDenied):
            importlib.import_module("approvals_again")
    assert approvals_again.X == 1
    assert len(asked) == 3


def test_an_answer_to_an_import_that_failed_ends_with_its_guard(asking, monkeypatch, places):
    monkeypatch.syspath_prepend(places.ok)
    first, _ = asking("once", imports=False)
    with first(), pytest.raises(ModuleNotFoundError):
        import approvals_later  # noqa: F401
    with open(f"{places.ok}/approvals_later.py", "w") as file:
        file.write("X = 1\n")
    second, asked = asking("deny", imports=False)
    with second(), pytest.raises(AuditDenied):
        importlib.import_module("approvals_later")
    assert len(asked) == 1


def test_an_answer_reaches_past_the_ports(asking):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        other = 1 if port != 1 else 2
        network = Network(ports=[other])
        perms, asked = asking("guard", "deny", network=network)
        with perms():
            for _ in range(2):
                socket.create_connection(("127.0.0.1", port), 5).close()
            with pytest.raises(AuditDenied):
                socket.create_connection(("127.0.0.1", port + 1), 5)
    assert len(asked) == 2


def test_reading(asking, places):
    for name in "ab":
        write(f"{places.out}/{name}")
    perms, asked = asking("guard", "deny", read=[places.ok])
    with perms():
        for _ in range(2):
            open(f"{places.out}/a").close()
        with pytest.raises(AuditDenied):
            open(f"{places.out}/b")
    assert [denied.approval("guard") for denied in asked] == [
        {"read": [f"{places.out}/{name}"]} for name in "ab"
    ]


def test_a_directory_of_a_user_is_no_pattern(asking, monkeypatch, places):
    monkeypatch.setenv("HOME", places.out)
    perms, asked = asking("deny")
    with perms(), pytest.raises(AuditDenied):
        write(f"{places.out}/a")
    assert asked[0].answers == ("once", "guard", "deny", "never")


@pytest.mark.skipif(TRUE is None, reason="needs the program true")
def test_commands_are_approved_by_their_program(asking):
    perms, asked = asking("pattern", "deny")
    with perms():
        for _ in range(2):
            subprocess.run([TRUE, "x"], check=True)
        with pytest.raises(AuditDenied):
            subprocess.run([sys.executable, "-c", ""])
    assert asked[0].answers == ("once", "pattern", "deny", "never")
    assert asked[0].approval("pattern") == {"commands": [TRUE]}


def test_a_shell_is_approved_once(asking, places):
    perms, asked = asking("once")
    with perms():
        for _ in range(2):
            assert os.system("true") == 0
    assert [denied.answers for denied in asked] == [("once", "deny")] * 2


@pytest.mark.parametrize("answer", ["guard", "pattern"])
def test_variables(asking, monkeypatch, answer):
    monkeypatch.setenv("A_VARIABLE", "before")
    perms, asked = asking(answer, "deny")
    with perms():
        os.environ["A_VARIABLE"] = "1"
        os.environ["A_VARIABLE"] = "2"
        with pytest.raises(AuditDenied):
            os.environ["PATH"] = ""
    assert [denied.approval("guard") for denied in asked] == [
        {"env": ["A_VARIABLE"]},
        {"env": ["PATH"]},
    ]


@pytest.mark.parametrize("network", [False, Network(hosts=["a.example:80"])])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_hosts_are_approved_with_their_port(asking, network, host):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        perms, asked = asking("guard", "deny", network=network)
        with perms():
            for _ in range(2):
                socket.create_connection((host, port), 5).close()
            with pytest.raises(AuditDenied):
                socket.create_connection((host, port + 1), 5)
    assert asked[0].approval("guard")["network"]["hosts"] == [f"{host}:{port}"]
    # A host may have several addresses, which are tried one after another.
    addresses = {found[4] for found in socket.getaddrinfo(host, port + 1, type=socket.SOCK_STREAM)}
    assert 2 <= len(asked) <= 1 + len(addresses)


@pytest.mark.parametrize(("answer", "questions"), [("once", 2), ("guard", 1)])
def test_threads_that_are_approved_are_under_the_guard(places, answer, questions):
    asked, denied = [], []

    def ask(denied):
        asked.append(denied.event)
        return "deny" if denied.event == "open" else answer

    def work():
        try:
            write(f"{places.out}/a")
        except AuditDenied as error:
            denied.append(error)

    with Policy(write=[places.ok]).guard(on_ask=ask)():
        for _ in range(2):
            at_once.run(work)
    assert len(denied) == asked.count("open") == 2
    assert len(asked) == 2 + questions
    assert os.listdir(places.out) == []


def test_modules(asking, monkeypatch, places):
    for name in ("one", "two"):
        os.mkdir(f"{places.ok}/{name}_of_approvals")
        for module in ("__init__", "a", "b"):
            write_text = "" if module == "__init__" else "X = 1\n"
            with open(f"{places.ok}/{name}_of_approvals/{module}.py", "w") as file:
                file.write(write_text)
    monkeypatch.syspath_prepend(places.ok)
    perms, asked = asking("pattern", "deny", imports=False)
    with perms():
        import one_of_approvals.a
        import one_of_approvals.b  # noqa: F401

        with pytest.raises(AuditDenied):
            import two_of_approvals  # noqa: F401
    assert [denied.approval("pattern") for denied in asked] == [
        {"imports": ["one_of_approvals"]},
        {"imports": ["two_of_approvals"]},
    ]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("maybe", "not 'maybe'"),
        (1, "not 1"),
        (["once"], r"not \['once'\]"),
        (type("Async", (), {"__await__": lambda self: iter(())})(), "an awaitable of type Async"),
    ],
)
def test_another_answer_is_no(asking, places, answer, told):
    perms, _ = asking(answer)
    with perms(), pytest.raises(AuditDenied, match=told):
        write(f"{places.out}/a")
    assert os.listdir(places.out) == []


def test_what_it_raises_is_the_cause(places):
    def ask(denied):
        raise LookupError("nobody\nis here")

    with Policy(write=[places.ok]).guard(on_ask=ask)() as guard:
        with pytest.raises(AuditDenied, match="on_ask raised LookupError: nobody") as denial:
            write(f"{places.out}/a")
    assert isinstance(denial.value.__cause__, LookupError)
    assert guard.violation_count == 1


def test_an_interrupt_in_it_comes_through(places):
    def ask(denied):
        raise KeyboardInterrupt

    with Policy(write=[places.ok]).guard(on_ask=ask)(), pytest.raises(KeyboardInterrupt):
        write(f"{places.out}/a")
    assert os.listdir(places.out) == []


def test_it_runs_under_the_guard_and_is_not_asked_itself(places):
    inside = []

    def ask(denied):
        with pytest.raises(AuditDenied) as inner:
            write(f"{places.out}/b")
        inside.append(inner.value)
        return "once"

    with Policy(write=[places.ok]).guard(on_ask=ask)():
        write(f"{places.out}/a")
    assert len(inside) == 1
    assert inside[0].answer is None
    assert os.listdir(places.out) == ["a"]


def test_before_deny_has_the_first_word_and_on_denied_the_last(places):
    order = []

    def note(word, answer=None):
        return lambda *given: order.append(word) or answer

    policy = Policy(write=[places.ok])
    perms = policy.guard(note("before"), on_ask=note("ask", "deny"), on_denied=note("denied"))
    with perms(), pytest.raises(AuditDenied):
        write(f"{places.out}/a")
    assert order == ["before", "ask", "denied"]
    order.clear()
    with policy.guard(note("before", True), on_ask=note("ask", "deny"))():
        write(f"{places.out}/a")
    assert order == ["before"]


def test_nobody_is_asked_where_a_violation_proceeds(asking, places):
    perms, asked = asking("deny", on_violation="log")
    with perms():
        write(f"{places.out}/a")
    assert asked == []


@pytest.mark.parametrize("rules", ["0.1", "0.2"])
def test_guards_of_mk_audit(places, rules):
    asked = Asked("pattern", "deny")
    with make([places.ok], rules=rules, on_ask=asked)():
        write(f"{places.out}/a")
        write(f"{places.out}/b")
        with pytest.raises(AuditDenied):
            write(f"{places.cwd}/c")
    assert len(asked) == 2
    # A root of fastaudit 0.1 is a directory, which does not stand for itself.
    assert ("guard" in asked[0].answers) == (rules == "0.2")


def test_a_root_of_mk_audit_does_not_hold_itself_after_an_answer(places):
    asked = Asked("pattern", "deny")
    with make([places.ok], on_ask=asked)():
        write(f"{places.out}/a")
        with pytest.raises(AuditDenied):
            os.rmdir(places.ok)


def test_threads_may_ask_at_once(places):
    barrier = threading.Barrier(2, timeout=30)
    policy = Policy(write=[places.ok], threads="inherit")

    def ask(denied):
        barrier.wait()
        return "guard"

    with policy.guard(on_ask=ask)():
        at_once.run(*(functools.partial(write, f"{places.out}/{name}") for name in "ab"))
    assert sorted(os.listdir(places.out)) == ["a", "b"]


def test_the_inner_guard_asks(asking, places):
    outer, first = asking("once")
    inner, second = asking("once")
    with outer(), inner():
        write(f"{places.out}/a")
    # Entering another guard is an operation of its own.
    assert [denied.event for denied in first] == ["audit_perms.set_config"]
    assert [denied.event for denied in second] == ["open"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"on_ask": 3}, "on_ask must be None or a function"),
        ({"on_ask": lambda: None}, "on_ask"),
        ({"on_ask": lambda denied: None, "ask_seconds": 3}, "ask_seconds needs"),
        ({"ask_seconds": 3}, "ask_seconds needs on_ask"),
    ],
)
def test_arguments(options, told):
    with pytest.raises(TypeError, match=told):
        Policy().guard(**options)


def test_in_the_whole_process(places):
    code = f"""
from fastaudit_rs import Policy
asked = []
Policy(write=[{places.ok!r}]).install(
    on_ask=lambda denied: asked.append(1) or "guard", monitor_calls=False
)
for _ in range(2):
    open({places.out!r} + "/a", "w").close()
print(len(asked))
"""
    assert programs.printed(code) == "1\n"
