"""`before_deny`: what it gets, what its answers do, and what happens while it runs."""

import os
import traceback

import pytest


def overreach(places, name="a"):
    os.mkdir(f"{places.out}/{name}")


def test_what_it_gets(guard, places):
    calls = []

    def before_deny(*args):
        calls.append(args)

    data = object()
    with guard(before_deny=before_deny, data=data), pytest.raises(PermissionError) as denial:
        overreach(places)
    [(event, args, frame, message, given)] = calls
    assert event == "os.mkdir"
    assert args == (places.out + "/a", 0o777, -1)
    assert frame.f_code is overreach.__code__
    assert frame.f_back.f_code is test_what_it_gets.__code__
    assert denial.value.args == (message,)
    assert given is data


@pytest.mark.original_fails(until=(3, 11))
@pytest.mark.parametrize("answer", [True, 1, "yes", [0]])
def test_a_true_answer_allows(guard, places, answer):
    with guard(before_deny=lambda *args: answer):
        overreach(places)
    assert os.listdir(places.out) == ["a"]


@pytest.mark.parametrize("answer", [False, None, 0, "", []])
def test_a_false_answer_denies(guard, places, answer):
    with guard(before_deny=lambda *args: answer), pytest.raises(PermissionError):
        overreach(places)
    assert os.listdir(places.out) == []


@pytest.mark.parametrize("error", [ValueError, PermissionError, KeyboardInterrupt, SystemExit])
def test_what_it_raises_comes_through(guard, places, error):
    def before_deny(*args):
        raise error("from the host")

    with guard(before_deny=before_deny), pytest.raises(error, match="from the host"):
        overreach(places)
    assert os.listdir(places.out) == []


def test_an_answer_that_cannot_be_told_true_or_false_raises(guard, places):
    class Odd:
        def __bool__(self):
            raise LookupError("neither")

    with guard(before_deny=lambda *args: Odd()), pytest.raises(LookupError, match="neither"):
        overreach(places)
    assert os.listdir(places.out) == []


@pytest.mark.original_fails()
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_an_awaitable_answer_is_an_error_and_not_a_yes(guard, places):
    async def answer():
        return False

    with guard(before_deny=lambda *args: answer()):
        with pytest.raises(TypeError, match="before_deny must return a plain value"):
            overreach(places)
    assert os.listdir(places.out) == []


def test_it_is_asked_for_each_path(guard, places):
    paths = []

    def before_deny(event, args, frame, message, data):
        paths.append(message.split()[1])
        return True

    overreach(places)
    with guard(before_deny=before_deny):
        os.rename(places.out + "/a", places.out + "/b")
    assert paths == [repr(places.out + "/a"), repr(places.out + "/b")]


@pytest.mark.original_fails()
class TestDenialsInsideIt:
    def test_are_plain_denials(self, guard, places):
        asked = []

        def before_deny(event, args, frame, message, data):
            asked.append(args[0])
            overreach(places, "mine")
            return True

        with guard(before_deny=before_deny):
            with pytest.raises(PermissionError, match="os.mkdir '.*/mine' not in"):
                overreach(places)
        assert asked == [places.out + "/a"]
        assert os.listdir(places.out) == []

    def test_can_be_caught(self, guard, places):
        def before_deny(*args):
            try:
                overreach(places, "mine")
            except PermissionError:
                return True
            return False

        with guard(before_deny=before_deny):
            overreach(places)
        assert os.listdir(places.out) == ["a"]

    def test_do_not_stop_it_from_being_asked_again(self, guard, places):
        asked = []

        def before_deny(event, args, frame, message, data):
            asked.append(args[0])
            if len(asked) == 1:
                overreach(places, "mine")
            return True

        with guard(before_deny=before_deny):
            with pytest.raises(PermissionError):
                overreach(places)
            overreach(places)
        assert len(asked) == 2
        assert os.listdir(places.out) == ["a"]


def test_no_frame_of_ours_is_in_the_traceback(guard, places):
    with guard(before_deny=lambda *args: False), pytest.raises(PermissionError) as denial:
        overreach(places)
    frames = traceback.extract_tb(denial.value.__traceback__)
    assert [frame.name for frame in frames] == [
        "test_no_frame_of_ours_is_in_the_traceback",
        "overreach",
    ]
    assert denial.value.__context__ is None


class TestData:
    def test_set_data_returns_it_and_reaches_the_next_guard(self, mk_audit, places):
        seen = []
        audit_perms = mk_audit(
            [places.ok],
            before_deny=lambda *args: seen.append(args[-1]),
            data="old",
            monitor_calls=False,
        )
        new = ["new"]
        assert audit_perms.set_data(new) is new
        with audit_perms(), pytest.raises(PermissionError):
            overreach(places)
        assert seen == [new]

    def test_a_guard_in_force_keeps_its_data(self, mk_audit, places):
        seen = []

        def before_deny(event, args, frame, message, data):
            seen.append(data)
            return event == "audit_perms.set_data"

        audit_perms = mk_audit([places.ok], before_deny, None, "old", 3, False)
        with audit_perms():
            audit_perms.set_data("new")
            with pytest.raises(PermissionError):
                overreach(places)
        assert seen == ["old", "old"]

    def test_set_data_is_denied_inside_a_guard(self, mk_audit, places):
        audit_perms = mk_audit([places.ok], monitor_calls=False)
        message = r"(?m)^Audit: audit_perms.set_data blocked in sandbox with args: \('x',\)$"
        with audit_perms(), pytest.raises(PermissionError, match=message):
            audit_perms.set_data("x")
