"""The descriptor of a log that code closed: its number may be another file's by then."""

import os

from fastaudit_rs import AuditLog, Policy


def test_lines_go_into_no_other_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    free = os.dup(0)
    os.close(free)
    log = AuditLog("log")
    assert os.path.samestat(os.fstat(free), os.stat("log"))
    os.close(free)
    host = os.open("host.db", os.O_CREAT | os.O_RDWR)
    assert host == free
    with Policy(write=["."]).guard(log=log)():
        open("a", "w").close()
    log.close()
    del log
    assert os.fstat(host).st_size == 0
    os.close(host)
    with open("log") as file:
        assert '"event":"open"' in file.read()
