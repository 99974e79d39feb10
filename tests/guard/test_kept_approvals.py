"""Answers that are kept: in a file, and denials that nobody is asked about any more."""

import os
import shutil
import socket
import subprocess

import pytest
from asked import Asked, write

from fastaudit_rs import Approvals, AuditDenied, Policy

TRUE = shutil.which("true")


@pytest.fixture
def kept(tmp_path):
    return str(tmp_path / "approvals.toml")


def test_answers_are_kept_in_a_file(places, kept):
    policy = Policy(write=[places.ok])
    asked = Asked("guard", "pattern", "once", "deny")
    with policy.guard(on_ask=Approvals(kept, asked))():
        write(f"{places.out}/a")
        os.environ["AN_APPROVAL"] = "1"
        del os.environ["AN_APPROVAL"]
        write(f"{places.cwd}/b")
    assert len(asked) == 3
    assert Policy.from_toml(kept) == Policy(write=[f"{places.out}/a"], env=["AN_APPROVAL"])
    assert os.listdir(os.path.dirname(kept)).count("approvals.toml") == 1
    assert not [name for name in os.listdir(os.path.dirname(kept)) if name.endswith(".new")]
    asked = Asked("deny")
    with policy.guard(on_ask=Approvals(kept, asked))():
        write(f"{places.out}/a")
        os.environ["AN_APPROVAL"] = "1"
        del os.environ["AN_APPROVAL"]
        with pytest.raises(AuditDenied):
            write(f"{places.cwd}/b")
    assert len(asked) == 1


def test_guards_add_to_what_others_wrote(places, kept):
    policy = Policy(write=[places.ok])
    first, second = (policy.guard(on_ask=Approvals(kept, Asked("guard"))) for _ in range(2))
    for name, perms in [("a", first), ("b", second)]:
        with perms():
            write(f"{places.out}/{name}")
    assert set(Policy.from_toml(kept).write) == {f"{places.out}/a", f"{places.out}/b"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("write = [", "line 1"),
        ("\n\nwrite = 3", "write"),
        ("block = ['/x']", "block cannot be in a file of approvals"),
        ("never = 3", r"never must be a table of the fields that are denied: \[never\]"),
        ("[never]\nblock = ['/x']", "block cannot be in a file of approvals"),
        ("[never]\nwrit = ['/x']", "writ"),
        ("[never.never]\nwrite = []", "never"),
        ("max_bytes = 5", "max_bytes cannot be in a file of approvals"),
        ("packages = ['data']", "packages cannot be in a file of approvals"),
        ("network = false", "network cannot be in a file of approvals"),
        ("network = {ports = [1]}", "network cannot be in a file of approvals"),
    ],
)
def test_a_broken_file_is_an_error(kept, text, told):
    with open(kept, "w") as file:
        file.write(text)
    approvals = Approvals(kept, Asked("deny"))
    with pytest.raises(ValueError, match=told) as error:
        Policy().guard(on_ask=approvals)
    assert kept in str(error.value)
    with pytest.raises(ValueError, match=told):
        Policy().explain("open", "/x", "w", 0, approvals=approvals)


def test_guarded_code_cannot_have_a_guard_write_a_file(places, kept):
    with Policy(write=[places.ok]).guard()(), pytest.raises(AuditDenied):
        Policy().guard(on_ask=Approvals(kept, Asked("guard")))
    with Policy(write=[places.ok]).guard(lambda *args: args[0].startswith("audit_perms."))():
        with pytest.raises(RuntimeError, match="outside of guards"):
            Policy().guard(on_ask=Approvals(kept, Asked("guard")))
    approvals = Approvals(kept, Asked("guard"))
    denied = Policy().explain("open", "/nowhere/x", "w", os.O_WRONLY).denied
    with Policy(write=[places.ok]).guard()(), pytest.raises(AuditDenied):
        approvals(denied)
    assert not os.path.exists(kept)


def test_code_outside_of_guards_may_ask_by_it(kept):
    denied = Policy().explain("open", "/nowhere/x", "w", os.O_WRONLY).denied
    approvals = Approvals(kept, Asked("guard", "once"))
    assert [approvals(denied), approvals(denied)] == ["guard", "once"]
    assert Policy.from_toml(kept) == Policy(write=["/nowhere/x"])
    assert Approvals(kept, Asked("never"))(denied) == "never"
    with open(kept) as file:
        assert '[never]\nwrite = ["/nowhere"]' in file.read()


def test_a_file_that_cannot_be_written_is_told_and_the_answer_holds(places, tmp_path):
    asked = Asked("guard")
    approvals = Approvals(tmp_path / "none" / "approvals.toml", asked)
    with Policy(write=[places.ok]).guard(on_ask=approvals)():
        with pytest.warns(RuntimeWarning, match="an answer was not written to"):
            write(f"{places.out}/a")
        write(f"{places.out}/a")
    assert len(asked) == 1


def test_explain_tells_of_an_approval(kept):
    policy = Policy(write=["/nowhere/ok"])
    event = ("open", "/nowhere/x", "w", os.O_WRONLY)
    assert not policy.explain(*event, approvals=kept).allowed
    approvals = Approvals(kept, Asked("guard"))
    approvals(policy.explain(*event).denied)
    for given in (kept, approvals):
        told = policy.explain(*event, approvals=given)
        assert (told.allowed, told.denied, str(told.approved_by)) == (True, None, kept)
        assert str(told) == f"allowed by an approval in {kept}"
    other = policy.explain("open", "/nowhere/y", "w", os.O_WRONLY, approvals=kept)
    assert (other.allowed, other.approved_by) == (False, None)
    own = policy.explain("open", "/nowhere/ok/y", "w", os.O_WRONLY, approvals=kept)
    assert (own.allowed, own.approved_by) == (True, None)
    with pytest.raises(TypeError, match="approvals must be"):
        policy.explain(*event, approvals=3)


NEVER = "\nAsked for approval: it was answered before: never\n"


def test_never_is_asked_once(places):
    """Of this directory, while the guard's factory lives; others are asked for."""
    asked = Asked("never", "once")
    perms = Policy(write=[places.ok]).guard(on_ask=asked)
    for name in ("a", "b"):
        with perms() as guard, pytest.raises(AuditDenied) as denial:
            write(f"{places.out}/{name}")
        assert guard.violation_count == 1
    assert NEVER in str(denial.value)
    with perms():
        write(f"{places.cwd}/c")
        write(f"{places.ok}/d")
    assert [denied.path for denied in asked] == [f"{places.out}/a", f"{places.cwd}/c"]
    assert asked[0].approval("never") == {"write": [places.out]}
    assert asked[0].answer == "the answer was never"
    assert os.listdir(places.out) == []


def test_never_is_kept_in_a_file(places, kept):
    policy = Policy(write=[places.ok], network=False)
    asked = Asked("guard", "never", "never", "never")
    with policy.guard(on_ask=Approvals(kept, asked))():
        write(f"{places.out}/a")
        for path in (f"{places.cwd}/b", "/nowhere/c"):
            with pytest.raises(OSError):
                write(path)
        with pytest.raises(AuditDenied):
            socket.getaddrinfo("a.example", 443)
    assert len(asked) == 4
    with open(kept) as file:
        told = file.read()
    assert "\n# Nobody is asked for what these would allow: it is denied.\n[never]\n" in told
    again = Asked("once")
    with policy.guard(on_ask=Approvals(kept, again))():
        write(f"{places.out}/a")
        for path in (f"{places.cwd}/x", "/nowhere/y"):
            with pytest.raises(AuditDenied, match="answered before: never"):
                write(path)
        with pytest.raises(AuditDenied, match="answered before: never"):
            socket.getaddrinfo("a.example", 443)
        write(f"{places.out}/b")
    assert [denied.path for denied in again] == [f"{places.out}/b"]


def test_a_denial_that_is_kept_has_the_last_word(places, kept):
    """Also where a wider answer allows the same."""
    with open(kept, "w") as file:
        file.write(f"write = [{places.out!r}]\n[never]\nwrite = [{places.out + '/keys'!r}]\n")
    os.mkdir(f"{places.out}/keys")
    asked = Asked("once")
    with Policy().guard(on_ask=Approvals(kept, asked))():
        write(f"{places.out}/a")
        with pytest.raises(AuditDenied, match="answered before: never"):
            write(f"{places.out}/keys/a")
    assert asked == []
    assert os.listdir(f"{places.out}/keys") == []


def test_never_denies_nothing_that_the_policy_allows(places, kept):
    with open(kept, "w") as file:
        file.write(f"[never]\nwrite = [{places.ok!r}]\n")
    with Policy(write=[places.ok]).guard(on_ask=Approvals(kept))():
        write(f"{places.ok}/a")


def test_never_of_a_program(kept):
    asked = Asked("never", "once")
    with Policy().guard(on_ask=Approvals(kept, asked))():
        for words in (["a"], ["b"]):
            with pytest.raises(AuditDenied):
                subprocess.run([TRUE, *words])
    assert len(asked) == 1


def test_a_denial_that_cannot_be_kept_is_one(kept):
    """A shell starts whatever it is told to."""
    asked = Asked("never")
    with Policy().guard(on_ask=Approvals(kept, asked))():
        for _ in range(2):
            with pytest.warns(RuntimeWarning, match="cannot be kept: it counts as 'deny'"):
                with pytest.raises(AuditDenied):
                    os.system("exit 3")
    assert [denied.answers for denied in asked] == [("once", "deny")] * 2
    assert not os.path.exists(kept)


def test_explain_tells_of_a_denial_that_is_kept(kept):
    policy = Policy(write=["/nowhere/ok"])
    event = ("open", "/nowhere/x", "w", os.O_WRONLY)
    Approvals(kept, Asked("never"))(policy.explain(*event).denied)
    told = policy.explain(*event, approvals=kept)
    assert (told.allowed, told.approved_by, str(told.refused_by)) == (False, None, kept)
    assert str(told).endswith(f"\nNobody is asked: denied in {kept}")
    assert policy.explain(*event).refused_by is None
    other = policy.explain("open", "/elsewhere/x", "w", os.O_WRONLY, approvals=kept)
    assert (other.allowed, other.refused_by) == (False, None)


def test_a_session_in_a_sandbox_is_asked_once(tmp_path):
    pytest.importorskip("sandlock")
    from fastaudit_rs import Sandbox

    asked = Asked("never")
    with (
        Sandbox(parent=tmp_path, approvable=Policy(write=["/nowhere"])) as sandbox,
        sandbox.session(on_ask=asked) as session,
    ):
        for name in "ab":
            assert session.run(f"open('/nowhere/{name}', 'w')").returncode == 77
    assert len(asked) == 1
