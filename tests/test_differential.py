"""The same event under the original and under ours: the verdicts and messages agree.

Where they do not, the case is one of `DIFFERENCES`, which are those that the section "Verdicts" of
`docs/compatibility.md` lists, each with an example here.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from differential_worker import DESCRIPTORS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_events import BOTH, DENIED, DESTINATION, FIRST, IGNORED

EXAMPLES = 5200
DOCUMENT = Path(__file__).parent.parent / "docs/compatibility.md"

# What the arguments of each event are; a deny event has any.
SHAPES = {
    "open": ["path|fd", "mode", "flags"],
    "os.chdir": ["path|fd"],
    "os.chmod": ["path|fd", "number", "dir_fd"],
    "os.chown": ["path|fd", "number", "number", "dir_fd"],
    "os.chflags": ["path", "number"],
    "os.link": ["path", "path", "dir_fd", "dir_fd"],
    "os.mkdir": ["path", "number", "dir_fd"],
    "os.remove": ["path", "dir_fd"],
    "os.removexattr": ["path|fd", "text"],
    "os.rename": ["path", "path", "dir_fd", "dir_fd"],
    "os.rmdir": ["path", "dir_fd"],
    "os.setxattr": ["path|fd", "text", "text", "number"],
    "os.symlink": ["path", "path", "dir_fd"],
    "os.truncate": ["path|fd", "number"],
    "shutil.chown": ["path|fd", "text", "text"],
    "shutil.copyfile": ["path", "path"],
    "shutil.copymode": ["path", "path"],
    "shutil.copystat": ["path", "path"],
    "shutil.copytree": ["path", "path"],
    "shutil.make_archive": ["path", "text", "path", "path"],
    "shutil.move": ["path", "path"],
    "shutil.rmtree": ["path", "dir_fd"],
    "shutil.unpack_archive": ["path", "path", "text"],
    "sqlite3.connect": ["database"],
    "sqlite3.load_extension": ["number", "path"],
    "tempfile.mkdtemp": ["path"],
    "tempfile.mkstemp": ["path"],
    "object.__setattr__": ["text", "attribute", "number"],
}
EVENTS = sorted({*SHAPES, *DENIED, *FIRST, *DESTINATION, *BOTH, *IGNORED})

ATTRIBUTES = """
__name__ __qualname__ __module__ __bases__ __doc__ __type_params__ __class__ __code__ __defaults__
__kwdefaults__ other
""".split()
ORDINARY = {"__name__", "__qualname__", "__bases__", "__class__", "__defaults__", "__type_params__"}

COMPONENTS = [
    "ok", "okay", "out", "cwd", "sub", "deep", "file", "in", "escape", "enter", "dangling",
    "dangling_out", "loop", "here", "up", "alias", "ünï", "\udcff", "\ud800", "nul\0", "new",
    "..", "..", ".", "", "x" * 300,
]  # fmt: skip


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A directory tree that events name paths in. Nothing changes it."""
    base = Path(os.path.realpath(tmp_path_factory.mktemp("tree")))
    for path in ("ok/sub/deep", "ok/ünï", "ok/\udcff", "okay", "out/sub", "cwd"):
        (base / path).mkdir(parents=True)
    (base / "ok/file").touch()
    links = {
        "ok/in": "sub",
        "ok/escape": "../out",
        "ok/dangling": "nowhere/at/all",
        "ok/dangling_out": "../out/nowhere",
        "ok/loop": "loop",
        "ok/here": ".",
        "ok/up": "..",
        "ok/sub/escape": "../../out/sub",
        "out/enter": "../ok/sub",
        "alias": "ok",
    }
    for link, text in links.items():
        (base / link).symlink_to(text)
    return str(base)


@pytest.fixture(scope="module")
def ask(tree):
    """`ask(request)`: the verdicts of the original and of ours."""
    program = str(Path(__file__).with_name("differential_worker.py"))
    workers = [
        subprocess.Popen(
            [sys.executable, program, package, tree],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for package in ("fastaudit", "fastaudit_rs")
    ]

    def ask_both(request):
        for worker in workers:
            worker.stdin.write(json.dumps(request) + "\n")
            worker.stdin.flush()
        return [json.loads(worker.stdout.readline()) for worker in workers]

    yield ask_both
    for worker in workers:
        worker.stdin.close()
        worker.wait(10)
        worker.stdout.close()


class Case:
    """A request and both verdicts, with what the differences ask of them."""

    def __init__(self, request, original, ours):
        self.event = request["event"]
        self.args = [next(iter(value.items())) for value in request["args"]]
        self.shape = SHAPES.get(self.event, [])
        self.roots = [text(root) for root in request["oks"]]
        self.cwd = request["cwd"]
        self.original = original
        self.ours = ours
        self.loosens = original is not None and ours is None
        self.tightens = original is None and ours is not None

    def arg(self, index):
        return self.args[index] if index < len(self.args) else (None, None)

    def kinds(self, kind):
        """The arguments whose place in the event's shape is of this kind."""
        places = zip(self.shape, self.args, strict=False)
        return [arg for place, arg in places if place == kind]

    @property
    def path(self):
        """The first path as text, resolved; `None` where there is none."""
        kind, value = self.arg(0)
        if kind not in ("text", "bytes", "path") or "\0" in (path := text({kind: value})):
            return None
        return os.path.realpath(os.path.join(self.cwd, path))

    def database(self):
        kind, value = self.arg(0)
        return text({kind: value}) if kind in ("text", "bytes", "path") else None


def text(value):
    """A described path as `str`."""
    [(kind, content)] = value.items()
    return os.fsdecode(bytes.fromhex(content)) if kind == "bytes" else content


def is_relative(arg):
    kind, value = arg
    return kind in ("text", "bytes", "path") and not text({kind: value}).startswith("/")


def resolves_to_a_root(case):
    roots = {os.path.realpath(os.path.join(case.cwd, root)) for root in case.roots}
    return case.path in roots


DIFFERENCES = {
    "dir-fd": lambda case: (
        any(number not in (-1, None) for _, number in case.kinds("dir_fd"))
        and any(map(is_relative, case.kinds("path") + case.kinds("path|fd")))
    ),
    "descriptor": lambda case: (
        case.loosens and case.event != "os.chdir" and case.kinds("path|fd")[0][0] == "number"
        if case.kinds("path|fd")
        else False
    ),
    "fchdir": lambda case: case.loosens and case.event == "os.chdir" and case.arg(0)[0] == "number",
    "root-slash": lambda case: (
        case.original is not None
        and any(os.path.realpath(os.path.join(case.cwd, root)) == "/" for root in case.roots)
    ),
    "attributes": lambda case: (
        case.loosens and case.event == "object.__setattr__" and case.arg(1)[1] in ORDINARY
    ),
    "standing-device": lambda case: (
        case.loosens
        and case.event == "open"
        and text(dict([case.arg(0)])) in ("/dev/null", "/dev/stdout", "/dev/stderr")
    ),
    "root-as-directory": lambda case: (
        case.loosens and case.event == "open" and resolves_to_a_root(case)
    ),
    "symlink-text": lambda case: case.event == "os.symlink" and is_relative(case.arg(0)),
    "unpack-archive": lambda case: (
        case.original is not None and case.event == "shutil.unpack_archive"
    ),
    "sqlite-private": lambda case: (
        case.loosens and case.event == "sqlite3.connect" and case.database() in ("", ":memory:")
    ),
    "sqlite-uri": lambda case: (
        case.event == "sqlite3.connect" and (case.database() or "").startswith("file:")
    ),
    "sqlite-path-like": lambda case: (
        case.tightens and case.event == "sqlite3.connect" and case.arg(0)[0] == "liar"
    ),
    "chdir-back": lambda case: case.loosens and case.event == "os.chdir" and case.path == case.cwd,
    "malformed-event": lambda case: (
        len(case.args) < len(case.shape)
        and case.ours is not None
        and case.ours[0] == "PermissionError"
        and case.ours[1].startswith(f"Audit: {case.event} blocked")
    ),
}


def explanations(request, original, ours):
    case = Case(request, original, ours)
    return [name for name, applies in DIFFERENCES.items() if applies(case)]


def components():
    return st.lists(st.sampled_from(COMPONENTS), max_size=5)


@st.composite
def paths(draw, tree):
    """A path in the tree: absolute or relative, `str`, `bytes` or path-like."""
    parts = draw(components())
    start = draw(st.sampled_from([f"{tree}/", f"{tree}/ok/", f"{tree}//out/", "", "", "/"]))
    path = start + "/".join(parts) + draw(st.sampled_from(["", "", "/"]))
    kind = draw(st.sampled_from(["text", "text", "text", "bytes", "path"]))
    if kind == "bytes":
        return {"bytes": os.fsencode(path.replace("\ud800", "?")).hex()}
    return {kind: path}


def databases(tree):
    names = st.sampled_from(["", ":memory:", "file::memory:", "file:x.db", "x.db"])
    forms = st.sampled_from(
        ["file:{}", "file://{}", "file://localhost{}", "file:{}?mode=ro", "file:{}?mode=rwc",
         "file:{}?mode=memory&cache=shared", "FILE:{}"]
    )  # fmt: skip
    inside = st.sampled_from(["ok/a.db", "ok/%61.db", "out/a.db", "ok/%2e%2e/out/a.db"])
    uris = st.builds(lambda form, path: form.format(f"{tree}/{path}"), forms, inside)
    return st.one_of((names | uris).map(lambda name: {"text": name}), paths(tree))


def arguments(tree, event):
    """Arguments of the shapes that CPython raises the event with, now and then too few."""
    number = st.sampled_from([-1, 0, 1, 3, 0o777])
    kinds = {
        "path": paths(tree),
        "path|fd": st.one_of(
            paths(tree),
            paths(tree),
            paths(tree),
            paths(tree),
            paths(tree),
            st.sampled_from([{"number": fd} for fd in (*DESCRIPTORS, 0, 99)]),
            st.sampled_from([{"text": f"/dev/{name}"} for name in ("null", "stdout", "full")]),
        ),
        "dir_fd": st.sampled_from([{"number": fd} for fd in (*[-1] * 20, None, *DESCRIPTORS, 99)]),
        "number": number.map(lambda value: {"number": value}),
        "text": st.sampled_from([{"text": "a"}, {"text": "ü"}]),
        "attribute": st.sampled_from([{"text": name} for name in ATTRIBUTES]),
        "mode": st.sampled_from([{"text": m} for m in ("r", "rb", "w", "a", "x", "r+", "wb", "")])
        | st.just({"none": None}),
        "flags": st.sampled_from(
            [{"number": flags} for flags in (0, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_CLOEXEC)]
        ),
        "database": databases(tree),
    }
    shape = SHAPES.get(event, ["text", "number"])
    whole = st.tuples(*(kinds[kind] for kind in shape)).map(list)
    cut = st.builds(lambda args, keep: args[:keep], whole, st.integers(0, len(shape)))
    return st.integers(0, 19).flatmap(lambda pick: whole if pick else cut)


def requests(tree):
    roots = st.sampled_from(
        [{"text": f"{tree}/ok"}, {"text": f"{tree}/ok"}, {"text": "."}, {"text": f"{tree}/ok/sub"},
         {"text": f"{tree}/alias/"}, {"bytes": os.fsencode(f"{tree}/ok/ünï").hex()},
         {"path": f"{tree}/out"}, {"text": "./sub"}, {"text": f"{tree}/okay"}]
    )  # fmt: skip
    cwds = st.sampled_from([f"{tree}/cwd", f"{tree}/ok", f"{tree}/ok/sub", f"{tree}/out", "/"])
    return st.sampled_from(EVENTS + sorted(SHAPES) * 3).flatmap(
        lambda event: st.fixed_dictionaries(
            {
                "oks": st.integers(0, 19).flatmap(
                    lambda pick: st.lists(roots, max_size=3) if pick else st.just([{"text": "/"}])
                ),
                "cwd": cwds,
                "event": st.just(event),
                "args": arguments(tree, event),
            }
        )
    )


def test_verdicts_and_messages_agree(ask, tree):
    asked, agreed, explained = 0, 0, Counter()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(request=requests(tree))
    def compare(request):
        nonlocal asked, agreed
        original, ours = ask(request)
        asked += 1
        if original == ours:
            agreed += 1
        else:
            names = explanations(request, original, ours)
            explained.update(names)
            assert names, f"{request}\n  original: {original}\n  ours:     {ours}"

    compare()
    print(f"{asked} asked, {agreed} agreed; differences: {dict(explained)}")
    assert asked >= 5000
    # Were most cases differences, agreement would say little.
    assert agreed > asked * 0.8


def example(tree, event, *args, oks=("ok",), cwd="cwd"):
    def described(value):
        if isinstance(value, dict):
            return value
        return {"text": value} if isinstance(value, str) else {"number": value}

    return {
        "oks": [{"text": root if root in (".", "/") else f"{tree}/{root}"} for root in oks],
        "cwd": f"{tree}/{cwd}",
        "event": event,
        "args": [described(value) for value in args],
    }


def examples(tree):
    """For each difference, cases where the verdicts differ, and whether ours allows them."""
    return {
        "dir-fd": [
            (example(tree, "os.mkdir", "new", 0o777, 100), True),
            (example(tree, "os.mkdir", "new", 0o777, 102, cwd="ok"), False),
            (example(tree, "os.rename", "a", f"{tree}/ok/b", 102, -1, cwd="ok"), False),
        ],
        "descriptor": [
            (example(tree, "open", 103, "w", 0), True),
            (example(tree, "os.chmod", 103, 0o600, -1), True),
            (example(tree, "os.setxattr", 103, "user.a", "b", 0), True),
        ],
        "fchdir": [(example(tree, "os.chdir", 101), True)],
        "root-slash": [(example(tree, "os.mkdir", f"{tree}/out/new", oks=["/"]), True)],
        "attributes": [
            (example(tree, "object.__setattr__", "a", name, 1), True) for name in sorted(ORDINARY)
        ],
        "standing-device": [(example(tree, "open", "/dev/null", "w", 0), True)],
        "root-as-directory": [(example(tree, "open", f"{tree}/ok", {"none": None}, 2), True)],
        "symlink-text": [
            (example(tree, "os.symlink", "file", f"{tree}/ok/new", -1), True),
            (example(tree, "os.symlink", "../out", f"{tree}/ok/new", -1, cwd="ok/sub"), False),
        ],
        "unpack-archive": [
            (example(tree, "shutil.unpack_archive", f"{tree}/out/a.zip", f"{tree}/ok/a"), True)
        ],
        "sqlite-private": [
            (example(tree, "sqlite3.connect", name), True) for name in ("", ":memory:")
        ],
        "sqlite-uri": [
            (example(tree, "sqlite3.connect", f"file:{tree}/ok/a.db"), True),
            (example(tree, "sqlite3.connect", f"file:{tree}/out/a.db?mode=ro"), True),
            (example(tree, "sqlite3.connect", f"file:{tree}/out/a.db", cwd="ok", oks=["."]), False),
        ],
        "sqlite-path-like": [
            (
                example(tree, "sqlite3.connect", {"liar": [f"{tree}/ok/a", f"{tree}/out/b"]}),
                False,
            )
        ],
        "chdir-back": [(example(tree, "os.chdir", f"{tree}/cwd"), True)],
        "malformed-event": [(example(tree, "os.mkdir"), False), (example(tree, "open"), False)],
    }


@pytest.mark.parametrize("name", DIFFERENCES)
def test_difference_is_real(ask, tree, name):
    for request, allowed in examples(tree)[name]:
        original, ours = ask(request)
        assert original != ours, request
        assert (ours is None) == allowed, (request, ours)
        assert name in explanations(request, original, ours), (request, original, ours)


def test_documented_differences_are_these():
    verdicts = DOCUMENT.read_text().split("## Verdicts")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([^`]+)` \|", verdicts, re.MULTILINE) == list(DIFFERENCES)
