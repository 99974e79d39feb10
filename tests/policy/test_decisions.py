"""The decisions of policies: `tests/decisions/*.toml`, asked of guards.

`tests/decisions.rs` asks the policy core the same, in milliseconds. `format.md` beside the tables
says how they are read.
"""

import _thread
import contextlib
import importlib.util
import marshal
import os
import pathlib
import socket
import sys
import sysconfig
import threading

import pytest
from toml_tables import tomllib

from fastaudit_rs import AuditDenied, Policy, mk_audit
from fastaudit_rs.v02 import mk_audit as mk_audit_02

TABLES = sorted((pathlib.Path(__file__).parents[1] / "decisions").glob("*.toml"))
FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6, "unix": socket.AF_UNIX}


class PathLike:
    """An object that could give another path each time it is asked."""

    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return self.path


def rows():
    for table in TABLES:
        for number, policy in enumerate(tomllib.loads(table.read_text())["policy"]):
            for index, row in enumerate(policy["rows"]):
                name = f"{table.stem}-{number}-{index}-{row[0]}-{row[2]}"
                yield pytest.param(table, number, index, id=name.replace("/", "|"))


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    """The tables that were read, with the trees that were made for them."""
    made = {}

    def tree_of(path):
        if path not in made:
            tree = pathlib.Path(os.path.realpath(tmp_path_factory.mktemp(path.stem)))
            text = path.read_text().replace("TREE", str(tree))
            made[path] = (tree, tomllib.loads(text)["policy"])
            make(tomllib.loads(text).get("tree", {}), tree)
        return made[path]

    return tree_of


def make(described, tree):
    for directory in described.get("directories", ()):
        (tree / directory).mkdir(parents=True, exist_ok=True)
    for file in described.get("files", ()):
        (tree / file).touch()
    for program in described.get("programs", ()):
        (tree / program).write_text("#!/bin/sh\n")
        (tree / program).chmod(0o755)
    for link, text in described.get("links", {}).items():
        (tree / link).symlink_to(text)


def guard_of(written):
    if written.get("contract") == "mk_audit":
        return mk_audit(written["roots"], monitor_calls=False)
    if written.get("contract") == "v02":
        return mk_audit_02(written["roots"], monitor_calls=False)
    if "preset" in written:
        own = tomllib.loads(written.get("toml", ""))
        policy = Policy.preset(written["preset"]).replace(**own)
    else:
        policy = Policy.parse_toml(written["toml"])
    return policy.guard(monitor_calls=False)


def argument(value, close):
    if isinstance(value, list):
        return tuple(argument(item, close) for item in value)
    if not isinstance(value, dict):
        return value
    if not value:
        return None
    ((kind, value),) = value.items()
    if kind in {"reading", "writing"}:
        fd = os.open(value, os.O_RDONLY if kind == "reading" else os.O_WRONLY)
        close.callback(os.close, fd)
        return fd
    if kind == "socket":
        return close.enter_context(socket.socket(FAMILIES[value]))
    if kind == "list":
        return [argument(item, close) for item in value]
    makers = {
        "bytes": str.encode,
        "bytearray": lambda text: bytearray(text.encode()),
        "path": pathlib.Path,
        "pathlike": PathLike,
        "environment": dict,
        "object": lambda _: object(),
    }
    return makers[kind](value)


@contextlib.contextmanager
def installed(tree, name):
    """Makes a package of this name count as installed, which raises the event as it is imported.

    Its code says of itself that it is where packages are, which is learnt once in a process.
    """
    place = tree / "modules"
    place.mkdir(exist_ok=True)
    file = os.path.join(sysconfig.get_path("purelib"), f"{name}.py")
    code = compile("import sys\nsys.audit(*sys._decision)\n", file, "exec")
    header = importlib.util.MAGIC_NUMBER + bytes(12)
    (place / f"{name}.pyc").write_bytes(header + marshal.dumps(code))
    importlib.invalidate_caches()
    before = sys.modules.pop(name, None)
    sys.path.insert(0, str(place))
    try:
        yield
    finally:
        sys.path.remove(str(place))
        sys.modules.pop(name, None)
        if before is not None:
            sys.modules[name] = before
        vars(sys).pop("_decision", None)


def audit(event, args, facts, guard):
    """Raises the event under the guard, with the facts that a row gives."""
    if "other_threads" in facts:
        end = threading.Event()
        other = threading.Thread(target=end.wait)
        other.start()
        try:
            with guard():
                sys.audit(event, *args)
        finally:
            end.set()
            other.join()
    elif "real_thread" in facts:
        with guard():
            thread = threading.Thread(target=int)
            thread.start()
        thread.join()
    elif "importing" in facts:
        sys._decision = (event, *args)
        with guard():
            __import__(facts["importing"])
    elif "connected" in facts:
        with contextlib.ExitStack() as close, guard():
            for _ in range(facts["connected"]):
                sys.audit(event, close.enter_context(socket.socket()), *args[1:])
            sys.audit(event, *args)
    else:
        with guard():
            sys.audit(event, *args)


@pytest.mark.parametrize(("table", "number", "index"), list(rows()))
def test_guards_decide_as_the_tables_say(table, number, index, trees, monkeypatch):
    tree, policies = trees(table)
    monkeypatch.chdir(tree)
    monkeypatch.setenv("PATH", f"{tree}/bin")
    written = policies[number]
    event, args, expected, *more = written["rows"][index]
    facts = next((given for given in more if isinstance(given, dict)), {})
    hints = [given for given in more if isinstance(given, str)]
    if event.startswith("os.fork") and not facts and _thread._count():
        pytest.skip("the runner has a thread of its own")
    with contextlib.ExitStack() as close:
        if "importing" in facts:
            close.enter_context(installed(tree, facts["importing"]))
        guard = guard_of(written)
        args = [argument(value, close) for value in args]
        try:
            audit(event, args, facts, guard)
        except AuditDenied as denied:
            assert (denied.rule or "event") == expected, str(denied)
            for hint in hints:
                assert hint in (denied.hint or "")
        except FileNotFoundError:
            assert expected == "missing"
        else:
            assert expected == "allowed"
            assert not hints


def test_there_are_many_rows():
    assert len(list(rows())) >= 300
