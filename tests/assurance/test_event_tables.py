"""The rule tables name every audit event that this build of Python can raise, and no other."""

import platform
import re
import subprocess
import sys
import threading

import pytest
from event_rows import ROWS

# Raised by a function that link-time optimisation leaves no trace of in some builds, or only where
# SQLite was built with extensions.
UNSEEN = {
    "sys._getframe", "sys.excepthook", "sys.unraisablehook",
    "sqlite3.enable_load_extension", "sqlite3.load_extension",
}  # fmt: skip


NATIVE = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="reads the native code of x86-64"
)


def of_this_version(versions):
    """True if the page says that this version raises the event."""
    numbers = [int(number) for number in re.findall(r"3\.(\d+)", versions)]
    minor = sys.version_info.minor
    if versions in ("", "CPython"):
        return True
    if versions.endswith(" on"):
        return minor >= numbers[0]
    if versions.startswith("up to"):
        return minor <= numbers[0]
    return bool(numbers) and numbers[0] <= minor <= numbers[1]


@NATIVE
@pytest.mark.slow
def test_the_tables_name_each_event_of_this_python():
    from event_names import of_this_python

    found = of_this_python(set(ROWS))
    assert len(found) > 120
    assert found - set(ROWS) == set()
    elsewhere = ("(Windows)", "(macOS, BSD)")
    expected = {
        row.event
        for row in ROWS.values()
        if of_this_version(row.versions) and not row.does.endswith(elsewhere)
    }
    assert expected - found <= UNSEEN
    assert found - expected == set()


@NATIVE
@pytest.mark.slow
def test_an_event_that_the_tables_lack_is_found():
    """The test above can fail: without its row, an event of either kind is one too many."""
    from event_names import of_this_python

    found = of_this_python(set(ROWS) - {"shutil.rmtree", "os.mkdir", "syslog.syslog"})
    assert {"shutil.rmtree", "os.mkdir", "syslog.syslog"} <= found


@pytest.mark.parametrize("rules", ["0.1", "0.2"])
def test_what_the_page_says_of_a_verdict_is_so(guard, places, rules):
    """Events with no arguments: those that are denied whatever the arguments are, and no other."""
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    # Waiting for any child passes where there is none of the host's.
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    for name, row in ROWS.items():
        verdict = row.verdict if rules == "0.1" else row.verdict_02
        with guard(rules=rules):
            try:
                sys.audit(name)
                denied = False
            except PermissionError:
                denied = True
        # An event with a rule that wants arguments is denied without them.
        assert denied == (verdict != "passes"), name
    done.set()
    other.join()
    child.communicate()
