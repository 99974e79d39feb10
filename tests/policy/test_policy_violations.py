"""`Policy(on_violation=...)`: what becomes of a violation."""

import json
import logging
import os
import subprocess
import warnings

import pytest

from fastaudit_rs import AuditDenied, AuditWarning, Policy


@pytest.fixture
def guard(places):
    def make(on_violation, **options):
        policy = Policy(write=[places.ok], on_violation=on_violation)
        return policy.guard(monitor_calls=False, **options)()

    return make


class TestWarn:
    def test_it_proceeds_with_a_warning(self, guard, places):
        with guard("warn") as active, pytest.warns(AuditWarning) as caught:
            os.mkdir(places.out + "/a")
        assert os.listdir(places.out) == ["a"]
        operation = f"make the directory '{places.out}/a': not in '{places.ok}'"
        # A socket of another test may be collected meanwhile, which is a warning too.
        [warned] = [each for each in caught if each.category is AuditWarning]
        assert str(warned.message) == f"Would be denied: {operation}"
        assert warned.filename == __file__
        [denied] = active.violations
        assert (denied.rule, denied.message) == ("write", f"Denied: {operation}")
        assert denied.call_chain[-1].endswith("test_it_proceeds_with_a_warning")

    def test_a_warning_that_is_an_error_stops_it(self, guard, places):
        with guard("warn"), warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(AuditWarning):
                os.mkdir(places.out + "/a")
        assert os.listdir(places.out) == []


class TestLog:
    def test_it_proceeds_and_is_logged(self, guard, places, caplog):
        with guard("log") as active:
            os.mkdir(places.out + "/a")
            subprocess.run(["true"], check=True)
        assert os.listdir(places.out) == ["a"]
        first, second, *_ = caplog.records
        assert (first.name, first.levelno) == ("fastaudit_rs", logging.WARNING)
        assert (
            first.getMessage()
            == f"Would be denied: make the directory '{places.out}/a': not in '{places.ok}'"
        )
        assert first.fastaudit["path"] == places.out + "/a"
        assert first.fastaudit["call_chain"]
        json.dumps(first.fastaudit)
        assert second.fastaudit["command"] == "true"
        assert active.violation_count == len(caplog.records)

    def test_a_handler_that_writes_elsewhere(self, guard, places):
        """The host's own log file may be outside the roots."""
        handler = logging.FileHandler(places.out + "/log", delay=True)
        logger = logging.getLogger("fastaudit_rs")
        logger.addHandler(handler)
        try:
            with guard("log") as active:
                os.mkdir(places.out + "/a")
        finally:
            logger.removeHandler(handler)
            handler.close()
        with open(places.out + "/log") as file:
            assert file.read().startswith("Would be denied: make the directory")
        assert active.violation_count == 1


class TestFunction:
    def test_it_proceeds_when_the_function_returns(self, guard, places):
        told = []
        with guard(told.append) as active:
            os.mkdir(places.out + "/a")
        assert os.listdir(places.out) == ["a"]
        assert [type(denied) for denied in told] == [AuditDenied]
        assert told[0].path == places.out + "/a"
        assert active.violation_count == 1

    def test_what_it_raises_stops_the_operation(self, guard, places):
        def refuse(violation):
            raise violation

        with guard(refuse), pytest.raises(AuditDenied, match="make the directory"):
            os.mkdir(places.out + "/a")
        assert os.listdir(places.out) == []

    def test_what_it_does_itself_passes(self, guard, places):
        told = []

        def note(violation):
            told.append(violation)
            with open(places.out + "/note", "w"):
                pass

        with guard(note) as active:
            os.mkdir(places.out + "/a")
        assert sorted(os.listdir(places.out)) == ["a", "note"]
        assert len(told) == active.violation_count == 1

    def test_beside_the_callbacks_of_a_guard(self, guard, places):
        """The host is asked first, and told of what it did not allow."""
        told, violations = [], []
        before_deny = lambda event, *rest: event == "os.rmdir"  # noqa: E731
        with guard(violations.append, before_deny=before_deny, on_denied=told.append):
            os.mkdir(places.out + "/a")
            os.rmdir(places.out + "/a")
        assert [denied.event for denied in told] == ["os.mkdir"]
        assert [denied.event for denied in violations] == ["os.mkdir"]


class TestExplain:
    def test_it_says_what_would_be_denied(self, places):
        called = []
        for on_violation in ("warn", "log", called.append):
            policy = Policy(on_violation=on_violation)
            assert policy.explain("os.mkdir", places.out + "/a", 0o777, -1).rule == "write"
        assert called == []
