"""The place that a question is about: it is shown, and an answer is for no other."""

import os
import threading

import pytest
from asked import Asked

from fastaudit_rs import AuditDenied, Policy, mk_audit as make
from fastaudit_rs.tools import asking
from fastaudit_rs.tools.denials import place_of


@pytest.fixture
def outside(places):
    """A place with two directories that may not be written, and a link to the first one."""
    for name in ("harmless", "precious"):
        os.mkdir(f"{places.out}/{name}")
    os.symlink(f"{places.out}/harmless", f"{places.ok}/link")
    os.symlink(f"{places.out}/precious", f"{places.ok}/other")
    return places


def write(path, text="x"):
    with open(path, "w") as file:
        file.write(text)


def denied_by(places, act, **fields):
    asked = Asked("deny")
    with Policy(write=[places.ok], **fields).guard(on_ask=asked)(), pytest.raises(AuditDenied):
        act()
    return asked[0]


def shown(denied):
    """The question on a terminal."""
    texts = []
    asking.ask(denied, lambda text: texts.append(text), None, place_of(denied))
    return texts[0]


def test_dots_behind_a_link_are_not_folded(outside):
    """`link/../a` is a file beside the link's target, not one beside the link."""
    name = f"{outside.ok}/link/../notes.txt"
    denied = denied_by(outside, lambda: write(name))
    assert (denied.path, denied.resolved) == (name, f"{outside.out}/notes.txt")
    assert f"asks to write {outside.out}/notes.txt\n│ open, by the name {name!r}, " in shown(denied)


def test_a_link_is_followed(outside):
    os.symlink(f"{outside.out}/precious/f", f"{outside.ok}/f")
    denied = denied_by(outside, lambda: write(f"{outside.ok}/f"))
    assert denied.resolved == f"{outside.out}/precious/f"
    assert f"asks to write {outside.out}/precious/f\n" in shown(denied)


def test_an_entry_is_not_followed(outside):
    os.symlink(f"{outside.ok}/f", f"{outside.out}/l")
    denied = denied_by(outside, lambda: os.remove(f"{outside.out}/l"))
    assert denied.resolved == f"{outside.out}/l"


def test_a_name_that_says_where_it_leads_stands_alone(outside, monkeypatch):
    monkeypatch.chdir(outside.out)
    for name in ("harmless/a", "./harmless//a", f"{outside.out}/harmless/a"):
        denied = denied_by(outside, lambda name=name: write(name))
        assert denied.resolved == f"{outside.out}/harmless/a"
        assert "by the name" not in shown(denied)
    denied = denied_by(outside, lambda: write("../out/a"))
    assert "by the name '../out/a'" in shown(denied)


@pytest.mark.parametrize("text", ["../../out/precious", "{out}/precious"])
def test_the_text_of_a_link_starts_at_the_link(outside, text, monkeypatch):
    monkeypatch.chdir(outside.cwd)
    os.mkdir(f"{outside.ok}/sub")
    text, link = text.format(out=outside.out), f"{outside.ok}/sub/l"
    denied = denied_by(outside, lambda: os.symlink(text, link))
    assert (denied.link, denied.resolved) == (link, f"{outside.out}/precious")
    assert f"asks to make {link} a link to {outside.out}/precious\n" in shown(denied)


def test_a_link_that_is_made_elsewhere(outside):
    text = f"{outside.ok}/f"
    denied = denied_by(outside, lambda: os.symlink(text, f"{outside.ok}/link/l"))
    told = f"asks to make {outside.out}/harmless/l a link with the text {text!r}\n"
    assert told in shown(denied)


def test_reading_and_blocked_places(outside):
    write(f"{outside.out}/harmless/a")
    blocked = {"read": None, "block": [f"{outside.out}/harmless"]}
    for fields in ({"read": [outside.ok]}, blocked):
        denied = denied_by(outside, lambda: open(f"{outside.ok}/link/a"), **fields)
        assert denied.resolved == f"{outside.out}/harmless/a"


def test_it_survives_pickling(outside):
    denied = denied_by(outside, lambda: os.symlink("../out", f"{outside.ok}/l"))
    again = AuditDenied.from_dict(denied.to_dict())
    assert (again.resolved, again.link) == (denied.resolved, denied.link)
    assert again.resolved == outside.out


class Thinking:
    """A person who answers when another thread has put another link in the place of one."""

    def __init__(self, places, *answers):
        self.answers = list(answers)
        self.asked = []
        self.begun, self.done = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.swap, args=(places,))
        self.thread.start()

    def swap(self, places):
        self.begun.wait()
        os.replace(f"{places.ok}/other", f"{places.ok}/link")
        self.done.set()

    def __call__(self, denied, *_):
        self.begun.set()
        self.done.wait()
        self.asked.append(getattr(denied, "resolved", None))
        return self.answers.pop(0)


@pytest.mark.parametrize("answer", ["once", "guard", "pattern"])
def test_an_answer_is_for_the_place_that_was_shown(outside, answer):
    """A link that another thread swaps while a person thinks leads nowhere."""
    asked = Thinking(outside, answer, "deny")
    perms = Policy(write=[outside.ok]).guard(on_ask=asked)
    with perms() as guard:
        with pytest.raises(AuditDenied, match="led to another place") as denial:
            write(f"{outside.ok}/link/a")
        assert denial.value.resolved == f"{outside.out}/harmless/a"
        assert guard.violation_count == 1
        with pytest.raises(AuditDenied):
            write(f"{outside.ok}/link/a")
        if answer != "once":
            write(f"{outside.out}/harmless/a")
    asked.thread.join()
    assert os.listdir(f"{outside.out}/precious") == []
    assert asked.asked == [f"{outside.out}/{name}/a" for name in ("harmless", "precious")]


def test_before_deny_answers_for_the_place_too(outside):
    asked = Thinking(outside, True)
    perms = make([outside.ok], before_deny=lambda event, args, *_: asked(None))
    with perms(), pytest.raises(AuditDenied, match="led to another place"):
        write(f"{outside.ok}/link/a")
    asked.thread.join()
    assert os.listdir(f"{outside.out}/precious") == []


def test_a_directory_that_was_left_meanwhile(outside, monkeypatch):
    """A relative name starts from another directory then."""
    monkeypatch.chdir(f"{outside.out}/harmless")

    def ask(denied):
        os.chdir(f"{outside.out}/precious")
        return "once"

    perms = Policy(write=[outside.ok, f"{outside.out}/precious/d"]).guard(on_ask=ask)
    with perms(), pytest.raises(AuditDenied):
        write("a")
    assert os.listdir(f"{outside.out}/precious") == []
