"""Each test marked `original_fails` fails when the original is in our place.

A test of a kept promise that the original passes too would show nothing.
"""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from repository import TESTS


def applies(marker):
    since, until = marker.kwargs.get("since"), marker.kwargs.get("until")
    version = sys.version_info[:2]
    return (since is None or version >= since) and (until is None or version < until)


def is_by_callee(item):
    """True of a test that watches calls as the original does not."""
    return hasattr(item, "callspec") and item.callspec.params.get("side") == "callee"


@pytest.fixture(scope="module")
def marked(request):
    """The tests collected in this run that the original should fail, by file and name."""
    return {
        (Path(item.path).name, item.name)
        for item in request.session.items
        if (marker := item.get_closest_marker("original_fails"))
        and applies(marker)
        and not is_by_callee(item)
    }


@pytest.mark.nightly
def test_the_original_fails_what_is_marked(marked, tmp_path):
    if not marked:
        pytest.skip("no test that is marked was collected")
    report = tmp_path / "report.xml"
    files = sorted({str(next(TESTS.rglob(file))) for file, _ in marked})
    command = [sys.executable, "-m", "pytest", "--implementation", "fastaudit"]
    options = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}", "-o", "junit_family=xunit1"]
    # Early releases of 3.11 cannot parse source again after a RecursionError (gh-106905), as pytest
    # does to show where the original went wrong.
    options += ["--tb=native"]
    run = subprocess.run([*command, *options, *files], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 1, run.stdout + run.stderr
    passed, seen = set(), set()
    for case in ElementTree.parse(report).iter("testcase"):
        test = (Path(case.get("file")).name, case.get("name"))
        seen.add(test)
        if not len(case):
            passed.add(test)
    assert sorted(marked - seen) == []
    assert sorted(marked & passed) == []
