"""The first guards of a process, made by many threads at once. Each in a fresh process."""

import os
import sysconfig

import programs
import pytest

TOGETHER = """
    import os, sys, threading
    sys.setswitchinterval(1e-6)
    from fastaudit_rs import Policy

    policy = Policy(write=[])
    start = threading.Barrier(20)
    outcomes = []

    def first():
        start.wait()
        try:
            guard = policy.guard()
            with guard():
                os.mkdir(FILE)
        except BaseException as error:
            outcomes.append(type(error).__name__)

    threads = [threading.Thread(target=first) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(len(outcomes), *sorted(set(outcomes)))
"""


def run(code, **given):
    for name, value in given.items():
        code = code.replace(name, repr(value))
    return programs.printed(code, options=["-W", "ignore"]).strip()


@pytest.mark.parametrize("times", [3, pytest.param(200, marks=pytest.mark.nightly)])
def test_none_of_twenty_threads_fails(tmp_path, times):
    for _ in range(times):
        assert run(TOGETHER, FILE=str(tmp_path / "new")) == "20 AuditDenied"


def test_a_hook_that_refuses_ours_refuses_each(tmp_path):
    hook = """
    import sys
    def refuse(event, args):
        if event == "sys.addaudithook":
            raise RuntimeError
    sys.addaudithook(refuse)
    """
    assert run(hook + TOGETHER, FILE=str(tmp_path / "new")) == "20 RuntimeError"
    assert not (tmp_path / "new").exists()


INSTALLING = """
    import os, sys, threading
    from fastaudit_rs import Policy

    policy = Policy(write=[])
    entered, go = threading.Event(), threading.Event()

    def hook(event, args):
        if event == "sys.addaudithook" and not entered.is_set():
            entered.set()
            HOOK

    sys.addaudithook(hook)

    def guarded():
        try:
            guard = policy.guard()
            with guard():
                os.mkdir(FILE)
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:40]}"
"""


def test_a_copy_of_the_process_installs_it_itself(tmp_path):
    code = """
    first = threading.Thread(target=guarded)
    first.start()
    entered.wait()
    child = os.fork()
    if not child:
        os._exit(not str(guarded()).startswith("AuditDenied"))
    print(os.waitpid(child, 0)[1])
    go.set()
    first.join()
    """
    code = INSTALLING.replace("HOOK", "go.wait()") + code
    assert run(code, FILE=str(tmp_path / "new")) == "0"


def test_a_hook_that_makes_a_guard_meanwhile_is_told(tmp_path):
    code = INSTALLING.replace("HOOK", "print(guarded())") + "    print(guarded())"
    told, denied = run(code, FILE=str(tmp_path / "new")).splitlines()
    assert told.startswith("RuntimeError: the audit hook is being installed")
    assert denied.startswith("AuditDenied")


@pytest.mark.skipif(not hasattr(sysconfig, "_CONFIG_VARS_LOCK"), reason="no lock")
def test_it_does_not_wait_for_a_thread_that_reads_the_configuration():
    """A copy of the process lacks that thread: it would wait without end."""
    code = """
    import signal, sysconfig, threading
    from fastaudit_rs import Policy
    held, done = threading.Event(), threading.Event()

    def hold():
        with sysconfig._CONFIG_VARS_LOCK:
            held.set()
            done.wait()

    threading.Thread(target=hold, daemon=True).start()
    held.wait()
    signal.alarm(20)
    with Policy(read=["/"], write=[]).guard()():
        print("made")
    """
    assert programs.printed(code) == "made\n"


#: Prints the modules that the first guard imports.
IMPORTS = """
import sys
before = set(sys.modules)
from fastaudit_rs import Policy
Policy(write=["/tmp"]).guard()
print(*set(sys.modules) - before)
"""

#: Copies the process while threads make the first guards, each copy making one too. What they
#: import is there before: CPython's locks of modules are those of the threads that import.
COPIES = """
import importlib, os, signal, sys, threading
for name in sys.argv[1:]:
    importlib.import_module(name)
from fastaudit_rs import Policy
sys.setswitchinterval(1e-5)

def make():
    Policy(write=["/tmp"]).guard()

threads = [threading.Thread(target=make) for _ in range(8)]
for thread in threads:
    thread.start()
copies = []
for _ in range(8):
    copy = os.fork()
    if not copy:
        signal.alarm(20)
        with Policy(write=["/tmp"]).guard()():
            pass
        os._exit(0)
    copies.append(copy)
for thread in threads:
    thread.join()
sys.exit(any(os.waitpid(copy, 0)[1] for copy in copies))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_copy_made_meanwhile_does_not_wait_for_threads_that_it_lacks():
    names = [name for name in programs.printed(IMPORTS).split() if not name.startswith("__")]
    for _ in range(5):
        programs.printed(COPIES, *names, options=["-W", "ignore"], timeout=120)


@pytest.mark.parametrize("name", ["Connection", "Cursor"])
def test_what_could_not_be_installed_is_installed_by_the_next_guard(tmp_path, name):
    """A host's own function may be in the place of one that a guard needs for a while."""
    code = f"""
    import gc, sqlite3, sys
    from fastaudit_rs import Policy

    policy = Policy(write=[])
    # The classes are immutable: tools that patch them change the dictionary behind them.
    [attributes] = gc.get_referents(sqlite3.{name}.__dict__)
    own = attributes["execute"]
    attributes["execute"] = lambda *args: own(*args)
    for _ in range(2):
        try:
            policy.guard()
        except RuntimeError as error:
            print(error)
    attributes["execute"] = own
    # Since 3.13, and before.
    (getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache)()
    with policy.guard()():
        for database in (sqlite3.connect(":memory:"), sqlite3.connect(":memory:").cursor()):
            try:
                database.execute("ATTACH {str(tmp_path / "made")!r} AS x")
            except PermissionError:
                print("denied")
    """
    told = f"fastaudit_rs: no guard can be held here: {name}.execute is called in an unknown way\n"
    assert programs.printed(code) == told * 2 + "denied\n" * 2
    assert list(tmp_path.iterdir()) == []
