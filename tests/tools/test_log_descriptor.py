"""The descriptor of a log that code closed: its number may be another file's by then."""

import contextlib
import os

import pytest

from fastaudit_rs import AuditLog, Policy


@contextlib.contextmanager
def audit_log(policy):
    log = AuditLog("log")
    yield policy.guard(log=log)
    log.close()


@contextlib.contextmanager
def log_of_observing(policy):
    yield policy.observe(log="log")


@pytest.mark.parametrize("logged", [audit_log, log_of_observing])
def test_lines_go_into_no_other_file(tmp_path, monkeypatch, logged):
    monkeypatch.chdir(tmp_path)
    free = os.dup(0)
    os.close(free)
    with logged(Policy(write=["."])) as guard:
        assert os.path.samestat(os.fstat(free), os.stat("log"))
        os.close(free)
        host = os.open("host.db", os.O_CREAT | os.O_RDWR)
        assert host == free
        with guard():
            open("a", "w").close()
    del guard
    assert os.fstat(host).st_size == 0
    os.close(host)
    with open("log") as file:
        assert '"event":"open"' in file.read()
