"""`native_functions.toml` has every native function of this Python, and what it says is so."""

import importlib
import json
import re
import sys

import native_functions
import programs
import pytest
import toml_tables
from event_rows import RAISED, ROWS
from repository import ROOT, SUPPORT

from fastaudit_rs import AuditDenied

DOCS = ROOT / "docs"
TABLE = toml_tables.load(SUPPORT / "native_functions.toml")
PURE = TABLE.pop("pure").split()
PLAIN = ("none", "handle", "guarded")


def functions():
    """The functions of this Python, by module; of those that act alone."""
    return {name: native_functions.in_module(name) for name in native_functions.modules()}


FOUND = functions()


def entry(module, name):
    """Find a function in the table: its kind, and its call; `None` if it is not there."""
    says = {}
    for kind in PLAIN:
        says.update(dict.fromkeys(TABLE[module].get(kind, "").split(), (kind, None)))
    for kind in ("held", "limits"):
        calls = TABLE[module].get(kind, {})
        says.update({key: (kind, call) for key, call in calls.items()})
    whole = name.rpartition(".")[0] + ".*" if "." in name else name
    return says.get(name) or says.get(whole) or says.get("*")


def calls():
    """The calls of the table that can be made here, by function."""
    for module, table in TABLE.items():
        for kind in ("held", "limits"):
            for name, call in table.get(kind, {}).items():
                known = FOUND.get(module, [])
                start = name.removesuffix("*")
                if name in known or (start != name and any(k.startswith(start) for k in known)):
                    yield f"{module}.{name}", kind, call


def test_each_function_is_in_the_table():
    missing = [
        f"{module}.{name}"
        for module, names in FOUND.items()
        if module not in PURE
        for name in names
        if module not in TABLE or entry(module, name) is None
    ]
    assert missing == []


def test_each_entry_is_once():
    for module, table in TABLE.items():
        names = [name for kind in PLAIN for name in table.get(kind, "").split()]
        names += [*table.get("held", {}), *table.get("limits", {})]
        assert sorted(names) == sorted(set(names)), module


def test_events_and_rows_are_documented():
    """Pages say how events are judged, and why operations pass."""
    rows = set(re.findall(r"^\| `([^`]+)` \|", (DOCS / "limits.md").read_text(), re.MULTILINE))
    for table in TABLE.values():
        assert {call[0] for call in table.get("held", {}).values()} <= set(ROWS)
        assert {call[0] for call in table.get("limits", {}).values()} <= rows


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make each call of the table under a guard."""
    request = {name: call[1] for name, _, call in calls()}
    command = [sys.executable, SUPPORT / "native_calls_worker.py", json.dumps(request)]
    command.append(str(tmp_path_factory.mktemp("calls")))
    done = programs.run(command)
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert done.returncode == 0, [*lines[-1:], done.stderr]
    results = [json.loads(line) for line in lines]
    return {result[0]: result[1:] for result in results if len(result) > 1}


def test_held_functions_raise_their_event(made):
    wrong = []
    for name, kind, call in calls():
        seen, _, said = made[name]
        if kind == "held" and call[0] not in seen and "not available" not in said:
            wrong.append((name, call[0], seen, said))
    assert wrong == []


def test_those_that_ask_no_arguments_raise_it_before_they_look_at_them(guard):
    for full in RAISED:
        name, _, function = full.partition(".")
        row = ROWS[RAISED[full]]
        # Some are asked by their arguments.
        asks = row.event in ("os.wait", "faulthandler.dump_traceback_later")
        if name not in ("posix", "_signal", "faulthandler") or asks:
            continue
        called = getattr(importlib.import_module(name), function, None)
        if called is not None and row.verdict.startswith("denied"):
            with guard(), pytest.raises(AuditDenied):
                called()


def test_limits_pass(made):
    wrong = []
    for name, kind, call in calls():
        _, kinds, said = made[name]
        expected = call[2].split(".")[-1] if len(call) > 2 else None
        if kind == "limits" and kinds and ("AuditDenied" in kinds or expected not in kinds):
            wrong.append((name, kinds[:1], said))
    assert wrong == []


def test_the_page_is_made_from_the_tables():
    script = ROOT / "scripts/native-code-page.py"
    done = programs.python(script, "--check")
    assert done.returncode == 0, done.stderr
