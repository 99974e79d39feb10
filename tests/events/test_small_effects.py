"""Effects on the process, its children and its terminal for which CPython raises no event, or one
that says no more than what is asked for."""

import faulthandler
import os
import subprocess
import sys
import tempfile

import programs
import pytest
from in_turn import Numbers
from test_silent import denied


class TestTheEnd:
    def test_of_a_timer(self, guard):
        event = "faulthandler.dump_traceback_later"
        with guard(), tempfile.TemporaryFile() as file:
            later = faulthandler.dump_traceback_later
            for ends in (True, 1, object()):
                assert denied(later, 60, exit=ends) == event
                assert denied(later, 60, False, file, ends) == event
                assert denied(list, map(later, [60], [False], [file], [ends])) == event
            faulthandler.dump_traceback_later(60, file=file)
            faulthandler.dump_traceback_later(60, file=file, exit=False)
            faulthandler.cancel_dump_traceback_later()


WAITS = {
    "wait": os.wait,
    "waitpid": lambda: os.waitpid(-1, 0),
    "waitpid of the group": lambda: os.waitpid(0, 0),
    "waitpid of a group": lambda: os.waitpid(-os.getpgrp(), os.WNOHANG),
    "wait3": lambda: os.wait3(0),
    "wait4": lambda: os.wait4(-1, 0),
    "wait4 by name": lambda: os.wait4(options=0, pid=0),
    "by native code": lambda: list(map(os.waitpid, [-1], [0])),
}
if hasattr(os, "waitid"):
    WAITS["waitid"] = lambda: os.waitid(os.P_ALL, 0, os.WEXITED)
    WAITS["waitid of a group"] = lambda: os.waitid(os.P_PGID, os.getpgrp(), os.WEXITED)


class TestWaiting:
    @pytest.mark.parametrize("way", WAITS)
    def test_for_a_child_of_the_host(self, guard, way):
        child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
        with guard():
            assert denied(WAITS[way]) == "os.wait"
            child.poll()
        assert child.wait() == 3

    @pytest.mark.parametrize("way", WAITS)
    def test_for_a_child_that_is_started_there(self, places, way):
        """In a process that has no others, as that of the tests may have."""
        code = f"""
import os, sys
sys.path[:] = {sys.path!r}
from fastaudit_rs import mk_audit
from test_small_effects import WAITS
with mk_audit([{places.ok!r}], monitor_calls=False)():
    if os.fork() == 0:
        os._exit(3)
    WAITS[{way!r}]()
    if "a group" not in {way!r}:
        try:
            os.wait()
        except ChildProcessError:
            print("waited for")
    else:
        print("waited for")
"""
        assert programs.printed(code) == "waited for\n"

    def test_for_one_by_its_number(self, guard):
        child = subprocess.Popen([sys.executable, "-c", ""])
        with guard():
            os.waitpid(child.pid, 0)
            with pytest.raises(ChildProcessError):
                os.waitid(os.P_PID, child.pid, os.WEXITED)
        child.wait()

    def test_for_programs_that_may_start(self):
        code = """
import os, subprocess, sys
from fastaudit_rs import Policy
with Policy(commands=[sys.executable]).guard(monitor_calls=False)():
    for _ in range(2):
        subprocess.Popen([sys.executable, "-c", ""])
    for _ in range(2):
        os.wait()
"""
        programs.printed(code)

    def test_by_a_number_that_changes(self, guard):
        child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
        with guard():
            assert denied(os.waitpid, Numbers(child.pid + 1, -1), 0) == "os.wait"
            assert denied(os.waitpid, Numbers(-1), 0) == "os.wait"
        assert child.wait() == 3
