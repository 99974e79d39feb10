"""The rule tables name every audit event that this build of Python can raise, and no other."""

import platform
import re
import subprocess
import sys
import threading

import pytest
from repository import ROOT

PAGE = ROOT / "docs/events.md"
ROW = re.compile(
    r"^\| `([^`]+)` \| ([^|]+) \| (\w+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]*) \|$",
    re.MULTILINE,
)

# Raised by a function that link-time optimisation leaves no trace of in some builds, or only where
# SQLite was built with extensions.
UNSEEN = {
    "sys._getframe", "sys.excepthook", "sys.unraisablehook",
    "sqlite3.enable_load_extension", "sqlite3.load_extension",
}  # fmt: skip


NATIVE = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="reads the native code of Linux on x86-64",
)


def of_this_version(versions):
    """Whether the page says that this version raises the event."""
    numbers = [int(number) for number in re.findall(r"3\.(\d+)", versions)]
    minor = sys.version_info.minor
    if versions == "all":
        return True
    if versions.endswith(" on"):
        return minor >= numbers[0]
    if versions.startswith("up to"):
        return minor <= numbers[0]
    return bool(numbers) and numbers[0] <= minor <= numbers[1]


@pytest.fixture(scope="module")
def rows():
    """What the page says of each event: it is made from the tables (`tests/events_page.rs`)."""
    return {row[0]: row[1:] for row in ROW.findall(PAGE.read_text())}


@NATIVE
def test_the_tables_name_each_event_of_this_python(rows):
    from event_names import of_this_python

    found = of_this_python(set(rows))
    assert len(found) > 120
    assert found - set(rows) == set()
    elsewhere = ("(Windows)", "(macOS, BSD)")
    expected = {
        name
        for name, (does, _, versions, *_) in rows.items()
        if of_this_version(versions) and not does.endswith(elsewhere)
    }
    assert expected - found <= UNSEEN
    assert found - expected == set()


@NATIVE
def test_an_event_that_the_tables_lack_is_found(rows):
    """The test above can fail: without its row, an event of either kind is one too many."""
    from event_names import of_this_python

    found = of_this_python(set(rows) - {"shutil.rmtree", "os.mkdir", "syslog.syslog"})
    assert {"shutil.rmtree", "os.mkdir", "syslog.syslog"} <= found


@pytest.mark.parametrize("rules", ["0.1", "0.2"])
def test_what_the_page_says_of_a_verdict_is_so(rows, guard, places, rules):
    """Events with no arguments: those that are denied whatever the arguments are, and no other."""
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    # Waiting for any child passes where there is none of the host's.
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    for name, (_, _, _, *verdicts, _) in rows.items():
        verdict = verdicts[rules == "0.2"]
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
