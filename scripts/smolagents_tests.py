"""Run smolagents' own tests of its executors on ours, in both places.

The tests come with its source distribution. They run on `GuardedExecutor` in the place of its
executors; scripts/smolagents_tests.toml has the tests that fail there, and why. A test that fails
and is not in it, or that is in it and passes, is an error.

    smolagents_tests.py                      all, in both places
    smolagents_tests.py --publish            write the list of docs/adapters.md anew
    smolagents_tests.py --inside PLACE FILE  once; the outcomes go to a file
"""

import builtins
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import tomllib

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "conformance"
LIST = ROOT / "scripts" / "smolagents_tests.toml"
PAGE = ROOT / "docs" / "adapters.md"
FILES = ("tests/test_local_python_executor.py", "tests/test_remote_executors.py")
PLACES = ("here", "sandbox")
#: The marks around the list on the page.
BEGIN, END = "<!-- smolagents_tests: begin -->", "<!-- smolagents_tests: end -->"


def fetch(release: str) -> Path:
    """The unpacked source distribution."""
    source = CACHE / f"smolagents-{release}"
    if not source.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        requirement = ["--no-deps", "--no-binary", "smolagents", f"smolagents=={release}"]
        command = [sys.executable, "-m", "pip", "download", "--quiet", *requirement]
        subprocess.run([*command, "--dest", str(CACHE)], check=True)
        with tarfile.open(CACHE / f"smolagents-{release}.tar.gz") as archive:
            archive.extractall(CACHE, filter="data")
    # It lacks a file that the tests import: a mark for tests that need a remote executor.
    (source / "tests" / "utils").mkdir(exist_ok=True)
    for package in ("tests", "tests/utils"):
        (source / package / "__init__.py").touch()
    mark = "def require_run_all(test):\n    return test\n"
    (source / "tests" / "utils" / "markers.py").write_text(mark)
    return source


class Ours:
    """Stands for the executors of smolagents, with ours."""

    def __init__(self, place: str) -> None:
        """Take the tools that smolagents gives to each of its own."""
        from smolagents.default_tools import BASE_PYTHON_TOOLS

        self.place = place
        self.base: dict[str, Any] = BASE_PYTHON_TOOLS

    def local(
        self,
        additional_authorized_imports: list[str],
        max_print_outputs_length: int | None = None,
        additional_functions: dict[str, Callable[..., Any]] | None = None,
        timeout_seconds: float | None = 30,
    ) -> Any:
        """Stand for `LocalPythonExecutor`."""
        from fastaudit_rs import Policy
        from fastaudit_rs.adapters.smolagents import PRINTED, GuardedExecutor

        return GuardedExecutor(
            Policy.preset("workspace"),
            self.place,  # type: ignore[arg-type]
            authorized_imports=additional_authorized_imports,
            max_print_outputs_length=max_print_outputs_length or PRINTED,
            tools=additional_functions,
            timeout=timeout_seconds,
        )

    def remote(self, additional_imports: list[str], logger: object) -> Any:
        """Stand for `ModalExecutor`, whose tests are those of any remote executor."""
        executor = self.local(["*"])
        executor.delete = executor.cleanup
        return executor

    def evaluate(
        self,
        code: str,
        static_tools: dict[str, Any] | None = None,
        custom_tools: dict[str, Any] | None = None,
        state: dict[str, Any] | None = None,
        authorized_imports: list[str] | None = None,
        max_print_outputs_length: int | None = None,
        timeout_seconds: float | None = 5,
    ) -> tuple[Any, bool]:
        """Stand for `evaluate_python_code`, which runs one step."""
        imports = authorized_imports or []
        with self.local(imports, max_print_outputs_length, None, timeout_seconds) as executor:
            executor.send_variables(self.variables(state or {}))
            executor.send_tools(self.tools({**(static_tools or {}), **(custom_tools or {})}))
            try:
                output = executor(code)
            finally:
                if state is not None:
                    state["_print_outputs"] = executor.state["_print_outputs"]
                    state.update(self.values(executor.state))
        return output.output, output.is_final_answer

    def tools(self, given: dict[str, Any]) -> dict[str, Any]:
        """The tools without builtins: all of Python needs none."""
        return {
            name: tool
            for name, tool in given.items()
            if getattr(builtins, name, None) is not tool and self.base.get(name) is not tool
        }

    def variables(self, state: dict[str, Any]) -> dict[str, Any]:
        """The variables without those of smolagents' own."""
        return {name: value for name, value in state.items() if not name.startswith("_")}

    def values(self, state: Any) -> Iterator[tuple[str, Any]]:
        """The names of the code that have data."""
        for name in state:
            if not name.startswith("_"):
                with suppress(TypeError):
                    yield name, state[name]


def same_names(test: object, first: dict[str, Any], second: dict[str, Any]) -> None:
    """Compare what the code made, without smolagents' own names."""
    own = ("_print_outputs", "_operations_count")
    assert {k: first[k] for k in first if k not in own} == {
        k: second[k] for k in second if k not in own
    }


class Outcomes:
    """A plugin of pytest that notes the outcome of each test."""

    def __init__(self) -> None:
        """Begin without tests."""
        self.found: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test; the reason of one that fails."""
        name = report.nodeid.partition("::")[2]
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.found[name] = str(crash.message if crash else report.longrepr)
        elif report.when == "call" and report.passed:
            self.found.setdefault(name, "passed")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Compare names of the code alone: operations are not counted, and nobody reads that."""
        for item in items:
            tests: Any = getattr(item, "cls", None)
            if hasattr(tests, "assertDictEqualNoPrint"):
                tests.assertDictEqualNoPrint = same_names


def run_inside(place: str, report: str) -> None:
    """Run the tests once."""
    import smolagents.local_python_executor as local
    import smolagents.remote_executors as remote

    ours = Ours(place)
    local.LocalPythonExecutor, local.evaluate_python_code = ours.local, ours.evaluate
    remote.ModalExecutor = ours.remote
    outcomes = Outcomes()
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", ".", "-o", "addopts=", "--tb=no"]
    names = [name for group in listed()["left_out"] for name in group["tests"]]
    left_out = [f"--deselect={FILES[0]}::{name}" for name in names]
    local_tests, remote_tests = FILES[0], f"{FILES[1]}::TestModalExecutorIntegration"
    pytest.main([*options, *left_out, local_tests, remote_tests], plugins=[outcomes])
    Path(report).write_text(json.dumps(outcomes.found))


def listed() -> dict[str, Any]:
    """The list of differences."""
    return tomllib.loads(LIST.read_text())


def outcomes(place: str, source: Path) -> dict[str, str]:
    """The outcomes of all tests in a place, by their names."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.json")
        command = [sys.executable, __file__, "--inside", place, str(report)]
        ran = subprocess.run(command, cwd=source, capture_output=True, text=True)
        if ran.returncode or not report.exists():
            sys.exit(f"{ran.stdout}{ran.stderr}\nsmolagents_tests: no tests in {place}")
        found: dict[str, str] = json.loads(report.read_text())
    return found


def is_of(name: str, entry: str) -> bool:
    """True if an entry of the list names a test, or the function that it is a case of."""
    return name == entry or name.startswith(f"{entry}[")


def wrong(place: str, found: dict[str, str], groups: list[dict[str, Any]]) -> list[str]:
    """The tests whose outcome is not that of the list, as lines."""
    here = [group for group in groups if place in group.get("places", PLACES)]
    expected = {entry: group["failure"] for group in here for entry in group["tests"]}
    lines = []
    for name, outcome in found.items():
        failures = [expected[entry] for entry in expected if is_of(name, entry)]
        is_passed = outcome == "passed"
        if is_passed == bool(failures) or not all(re.search(one, outcome) for one in failures):
            lines.append(f"{place}: {name}: {outcome[:1000]}")
    for entry in expected:
        if not any(is_of(name, entry) for name in found):
            lines.append(f"{place}: {entry}: there is no such test")
    return lines


def page(told: dict[str, Any], passed: dict[str, str]) -> str:
    """The list as a part of a page."""
    lines = [
        f"Of the tests of smolagents {told['version']}, {passed['here']} pass in this process and "
        f"{passed['sandbox']} in a sandbox. Not run, or different:",
        "",
    ]
    for group in (*told["left_out"], *told["different"]):
        where = " (in this process)" if "places" in group else ""
        lines.append(f"- {group['reason']}{where}")
    return "\n".join(lines)


def publish(text: str) -> None:
    """Write the list of the page anew."""
    head, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}")


def main(is_published: bool) -> int:
    """Run the tests in both places, and compare."""
    told = listed()
    if version("smolagents") != told["version"]:
        sys.exit(f"the list is for smolagents {told['version']}: pip install that")
    source = fetch(told["version"])
    lines, passed = [], {}
    for place in PLACES:
        found = outcomes(place, source)
        passed[place] = f"{list(found.values()).count('passed')} of {len(found)}"
        print(f"{place}: {passed[place]} tests of smolagents {told['version']} pass")
        lines += wrong(place, found, told["different"])
    print(*lines, sep="\n")
    if is_published and not lines:
        publish(page(told, passed))
    return 1 if lines else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        run_inside(*sys.argv[2:])
    else:
        sys.exit(main("--publish" in sys.argv))
