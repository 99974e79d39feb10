"""The same event under the original and under ours: the verdicts and messages agree.

Where they do not, the case is exactly one of the differences in `differential_cases.py`, which are
those that the section "Verdicts" of `docs/compatibility.md` lists, each with examples here.
"""

import contextlib
import json
import os
import re
import select
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from differential_cases import (
    DEVICES,
    DIFFERENCES,
    EVENTS,
    ORDINARY,
    SHAPES,
    explanations,
    text,
)
from differential_cases_02 import VARIABLES
from differential_worker import DESCRIPTORS
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from repository import ROOT, SUPPORT, TESTS

EXAMPLES = 7500
DOCUMENT = ROOT / "docs/compatibility.md"

OPEN_FLAGS = [
    os.O_RDWR,
    os.O_CREAT,
    os.O_TRUNC,
    os.O_APPEND | os.O_CLOEXEC,
    os.O_WRONLY | os.O_EXCL,
    os.O_RDWR | os.O_TMPFILE,
    os.O_CLOEXEC,
]

DATABASES = [
    "ok/a.db", "ok/a.db", "out/a.db", "out/a.db", "ok/%61.db", "ok/%2e%2e/out/a.db",
    "out/%2e./ok/sub/a", "ok/a%00b", "out/a%00/../../ok/b", "ok/escape/a.db", "ok/%zz",
    "ok/a.db#?mode=ro",
]  # fmt: skip

# The events that are not asked about in a deleted directory: another difference is in the way.
STAYS = (
    "os.chdir", "os.symlink", "shutil.unpack_archive", "sqlite3.connect", "object.__setattr__",
)  # fmt: skip

ODDITIES = ["gone", "lacking", "overridden", "failing", "unshowable", "code"]

ATTRIBUTES = """
__name__ __qualname__ __module__ __bases__ __doc__ __type_params__ __class__ __code__ __defaults__
__kwdefaults__ other
""".split()

COMPONENTS = [
    "ok", "okay", "out", "cwd", "sub", "deep", "file", "in", "escape", "enter", "dangling",
    "dangling_out", "loop", "here", "up", "alias", "dev", "ünï", "\udcff", "\ud800", "nul\0", "new",
    "..", "..", ".", "", "x" * 300,
]  # fmt: skip


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A directory tree that events name paths in. Nothing changes it."""
    base = Path(os.path.realpath(tmp_path_factory.mktemp("tree")))
    for path in ("ok/sub/deep", "ok/ünï", "ok/\udcff", "okay", "out/sub", "cwd/file:"):
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
        "ok/dev": "/dev",
        "ok/sub/escape": "../../out/sub",
        "out/enter": "../ok/sub",
        "alias": "ok",
    }
    for link, leads_to in links.items():
        (base / link).symlink_to(leads_to)
    return str(base)


class Worker:
    """A process that answers for one of the two packages."""

    def __init__(self, package, tree, python=sys.executable):
        program = str(SUPPORT / "differential_worker.py")
        self.package = package
        self.process = subprocess.Popen(
            [python, program, package, tree],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # No file, so that `/dev/stderr` may be opened.
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def send(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def receive(self):
        # It writes one line for one that it reads, so there is nothing in the buffer.
        ready, _, _ = select.select([self.process.stdout], [], [], 60)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            raise RuntimeError(f"the worker of {self.package} died or hangs")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()


@pytest.fixture(scope="module")
def ask(tree):
    """`ask(request)`: the verdicts of the original and of ours."""
    with asking(Worker("fastaudit", tree), Worker("fastaudit_rs", tree)) as ask_both:
        yield ask_both


@contextlib.contextmanager
def asking(*workers):
    def ask_both(request):
        line = json.dumps(request)
        for worker in workers:
            worker.send(line)
        return [worker.receive() for worker in workers]

    try:
        yield ask_both
    finally:
        for worker in workers:
            worker.close()


def of(kind, *values):
    """Arguments of one kind, described as requests do."""
    return st.sampled_from([{kind: value} for value in values])


def mostly(common, rare, every):
    """`common`, and `rare` once in so many times."""
    return st.sampled_from(range(every)).flatmap(lambda pick: common if pick else rare)


@st.composite
def paths(draw, tree):
    """A path in the tree: absolute or relative, `str`, `bytes` or path-like."""
    starts = ["/", "//", f"{tree}/", f"{tree}//out/"] + [""] * 6 + [f"{tree}/ok/"] * 8
    start = draw(st.sampled_from(starts))
    parts = draw(
        st.lists(st.sampled_from(COMPONENTS), max_size=draw(st.sampled_from([1, 2, 3, 6])))
    )
    # Behind a link to itself the system goes nowhere, and `realpath` goes on.
    if "loop" in parts:
        parts = parts[: parts.index("loop") + 1]
    path = start + "/".join(parts) + draw(st.sampled_from(["", "", "/"]))
    kind = draw(st.sampled_from(["text"] * 6 + ["bytes", "bytes", "path", "liar"]))
    if kind == "bytes":
        return {"bytes": os.fsencode(path.replace("\ud800", "?")).hex()}
    return {"liar": [path, f"{tree}/ok/a"]} if kind == "liar" else {kind: path}


@st.composite
def databases(draw, tree):
    """A name for SQLite: a plain one or a URI."""
    names = [
        "",
        ":memory:",
        "file::memory:",
        "file:x.db",
        "x.db",
        "FILE:x.db",
        "file:",
        "file:?a=b",
    ]
    if draw(st.booleans()):
        return draw(mostly(paths(tree), of("text", *names), every=3))
    form = draw(
        st.sampled_from(["file:{}", "file:{}", "file://{}", "file://localhost{}", "FILE:{}"])
    )
    path = draw(st.sampled_from(DATABASES))
    keys = st.sampled_from(["mode"] * 3 + ["%6dode", "mode%00", "mode%00x", "cache", "Mode"])
    values = st.sampled_from(["ro", "rw", "rwc", "memory", "memory", "ro%00", "%72o", "x", ""])
    query = "&".join(draw(st.lists(st.builds("{}={}".format, keys, values), max_size=3)))
    return {"text": form.format(f"{tree}/{path}") + ("?" + query if query else "")}


NUMBERS = of("number", -1, 0, 1, 3, 0o777)
OTHERS = st.one_of(
    of("text", "a", "ü'\n", "\udcff"),
    of("bytes", "6100ff"),
    NUMBERS,
    of("none", None),
    of("number", True, 2**80, 1.5, ["a", ["b"]], {"a": None}),
)


def kinds(tree, plain):
    """The values of each kind of argument; `plain` leaves out descriptors and devices."""
    path = mostly(paths(tree), of("none", None) | of("number", 1), every=20)
    devices = [*DEVICES, "/dev/full", "/dev/../dev//null", "/dev/null/", f"{tree}/ok/dev/null"]
    fds = of("number", *DESCRIPTORS, 0, 99, True) | of("index", 103)
    no_fd = of("number", -1)
    some_fd = mostly(no_fd, of("number", *DESCRIPTORS, 99) | of("none", None), every=3)
    return {
        "path": path,
        "path|fd": paths(tree) if plain else mostly(path, fds | of("text", *devices), every=6),
        "dir_fd": no_fd if plain else some_fd,
        "number": NUMBERS,
        "text": of("text", "a", "ü"),
        "other": OTHERS,
        "object": OTHERS | of("function", None),
        "attribute": mostly(of("text", *ATTRIBUTES), NUMBERS, every=10),
        "mode": mostly(
            of("text", "w", "a", "x", "r+", "wb", "r", "rb", "rt", ""),
            of("none", None, None, None) | of("bytes", "72"),
            every=2,
        ),
        "flags": of("number", 0, 0, -1, True, *OPEN_FLAGS),
        "database": databases(tree),
        "variable": mostly(of("text", *VARIABLES), OTHERS, every=10),
    }


@st.composite
def arguments(draw, tree, event, oddity, shapes):
    """Arguments of the shapes that CPython raises the event with, with an oddity or without."""
    if oddity == "code" and event == "object.__setattr__":
        new = draw(of("code", "marked", "other"))
        return [{"function": None}, {"text": "__code__"}, new]
    shape = shapes.get(event) or ["other"] * draw(st.integers(0, 4))
    of_kind = kinds(tree, plain=oddity is not None)
    args = [draw(of_kind[kind]) for kind in shape]
    if oddity == "lacking":
        if event == "open" and draw(st.booleans()):
            return [args[0], {"none": None}, {"none": None}]
        return args[: draw(st.integers(0, max(0, len(args) - 1)))]
    if oddity == "unshowable":
        places = [
            i for i, kind in enumerate(shape) if kind in ("other", "object", "text", "number")
        ]
        values = of("unshowable", None)
    else:
        places = [i for i, kind in enumerate(shape) if kind in ("path", "path|fd")]
        values = paths(tree).map(lambda path: {oddity: [text(*path.items()), f"{tree}/ok/a"]})
    if oddity in ("unshowable", "overridden", "failing") and places:
        args[draw(st.sampled_from(places))] = draw(values)
    return args


@st.composite
def requests(draw, tree, events=tuple(EVENTS), shapes=SHAPES):
    """A request, as `differential_worker.py` reads it."""
    often = sorted(shapes) * 10 + ["open", "os.chdir"] * 10
    event = draw(st.sampled_from([*events, *often]))
    roots = st.sampled_from(
        [{"text": f"{tree}/ok"}] * 6
        + [{"text": "."}] * 4
        + [{"text": f"{tree}/ok/sub"}, {"text": f"{tree}/alias/"}, {"text": f"{tree}//ok/escape"},
           {"bytes": os.fsencode(f"{tree}/ok/ünï").hex()}, {"path": f"{tree}/out"},
           {"text": "./sub"}, {"bytes": b".".hex()}, {"text": f"{tree}/okay"}, {"text": ".."},
           {"text": f"{tree}/ok/\udcff"}, {"text": "./"}, {"text": f"{tree}/missing/../new"}]
    )  # fmt: skip
    oks = draw(mostly(st.lists(roots, min_size=1, max_size=3), st.just([]), every=30))
    if not draw(st.sampled_from(range(30))):
        oks = [{"text": "/"}]
    places = ["/cwd", "/cwd", "/ok", "/ok", "/ok/sub", "/out", ""]
    cwd = draw(mostly(st.sampled_from([tree + place for place in places]), st.just("/"), every=15))
    oddity = draw(mostly(st.none(), st.sampled_from(ODDITIES), every=8))
    gone = oddity == "gone" and event not in STAYS
    # Only to where both allow it: what they say of other ways is asked of `os.chdir` itself.
    moves = [None]
    if {"text": f"{tree}/ok"} in oks and not gone:
        moves += [None, f"{tree}/ok", f"{tree}/ok/sub"]
    return {
        "oks": oks,
        "cwd": cwd,
        "move": draw(st.sampled_from(moves)),
        "gone": gone,
        "event": event,
        "args": draw(arguments(tree, event, oddity, shapes)),
    }


@pytest.mark.slow
@pytest.mark.parametrize("examples", [1500, pytest.param(EXAMPLES, marks=pytest.mark.nightly)])
def test_verdicts_and_messages_agree(ask, tree, examples):
    compare_all(ask, tree, requests(tree), EVENTS, explanations, examples)


def compare_all(ask, tree, strategy, events, explanations, examples=EXAMPLES):
    """Asks both of each event, and of what chance brings: what differs has one explanation."""
    asked, allowed, agreed, explained = set(), 0, 0, Counter()

    def compare(request):
        nonlocal agreed, allowed
        original, ours = ask(request)
        asked.add(json.dumps(request))
        if original == ours:
            agreed += 1
            allowed += ours is None
            return
        names = explanations(request, original, ours, tree)
        explained.update(names)
        assert len(names) == 1, (
            "".join(f"\n  {key}: {value}" for key, value in request.items())
            + f"\n  original: {original}\n  ours:     {ours}\n"
            + f"  explained by: {names or 'no difference'}"
        )

    # Each event for certain, then what chance brings.
    for event in events:
        for places in [("ok", "ok"), ("out", "ok"), ("ok", "out"), ("out", "out")]:
            compare(example(tree, event, *(f"{tree}/{place}/new" for place in places), 0))
    settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )(given(request=strategy)(compare))()
    print(
        f"{len(asked)} different requests; {agreed} times agreed, {allowed} of them allowed;"
        f" differences: {dict(explained.most_common())}"
    )
    assert len(asked) >= examples * 2 / 3
    # Were most cases differences, or denied, agreement would say little.
    assert agreed > examples * 0.7
    assert allowed > examples * 0.15


def example(tree, event, *args, oks=("ok",), cwd="cwd", move=None, gone=False):
    def described(value):
        if isinstance(value, dict):
            return value
        return {"text": value} if isinstance(value, str) else {"number": value}

    return {
        "oks": [{"text": root if root in (".", "/") else f"{tree}/{root}"} for root in oks],
        "cwd": f"{tree}/{cwd}",
        "move": move and f"{tree}/{move}",
        "gone": gone,
        "event": event,
        "args": [described(value) for value in args],
    }


NONE = {"none": None}


def examples(tree):
    """For each difference, cases where the verdicts differ, and whether ours allows them."""
    inside, outside = f"{tree}/ok/new", f"{tree}/out/new"
    return {
        "dir-fd": [
            (example(tree, "os.mkdir", "new", 0o777, 100), True),
            (example(tree, "os.mkdir", "new", 0o777, 102, cwd="ok"), False),
            (example(tree, "os.rename", "a", inside, 102, -1, cwd="ok"), False),
            (example(tree, "os.symlink", inside, "new", 102, cwd="ok"), False),
        ],
        "descriptor": [
            (example(tree, "open", 103, "w", 0), True),
            (example(tree, "os.chmod", 103, 0o600, -1), True),
            (example(tree, "os.setxattr", 103, "user.a", "b", 0), True),
        ],
        "fchdir": [(example(tree, "os.chdir", 101), True)],
        "root-slash": [
            (example(tree, "os.mkdir", outside, oks=["/"]), True),
            (example(tree, "os.chdir", f"{tree}/out", oks=["/"]), True),
        ],
        "attributes": [
            (example(tree, "object.__setattr__", "a", name, 1), True) for name in sorted(ORDINARY)
        ],
        "coroutine-mark": [
            (
                example(
                    tree,
                    "object.__setattr__",
                    {"function": None},
                    "__code__",
                    {"code": "marked"},
                ),
                True,
            )
        ],
        "extension-modules": [
            (example(tree, "import", "a", f"{tree}/ok/a.so", NONE), False),
            (example(tree, "import", "a", f"{tree}/out/a.so", NONE), False),
        ],
        "standing-device": [(example(tree, "open", name, "w", 0), True) for name in DEVICES],
        "root-as-directory": [(example(tree, "open", f"{tree}/ok", NONE, os.O_RDWR), True)],
        "landing": [
            (example(tree, "open", f"{tree}/ok/dangling_out", "w", 0), False),
            (example(tree, "open", f"{tree}/ok/up/out/enter/../escape", "w", 0), False),
            (example(tree, "os.chmod", f"{tree}/ok/escape", 0o700, -1), False),
            (example(tree, "os.truncate", f"{tree}/ok/escape", 0), False),
            (example(tree, "os.chmod", f"{tree}/out/enter", 0o700, -1), True),
            (example(tree, "os.rmdir", f"{tree}/ok/", -1), False),
            (example(tree, "os.symlink", f"{tree}/ok/escape", inside, -1), False),
            (example(tree, "os.link", f"{tree}/ok/escape", inside, -1, -1), False),
        ],
        "symlink-text": [
            (example(tree, "os.symlink", "file", inside, -1), True),
            (example(tree, "os.symlink", "file", "new", 100), True),
            (example(tree, "os.symlink", "../out", inside, -1, cwd="ok/sub"), False),
        ],
        "unpack-archive": [
            (example(tree, "shutil.unpack_archive", outside, inside), True),
            (example(tree, "shutil.unpack_archive", outside, outside + "2"), False),
        ],
        "sqlite-private": [
            (example(tree, "sqlite3.connect", name), True) for name in ("", ":memory:")
        ],
        "sqlite-uri": [
            (example(tree, "sqlite3.connect", f"file:{inside}"), True),
            (example(tree, "sqlite3.connect", f"file:{outside}?mode=ro"), True),
            (example(tree, "sqlite3.connect", f"file:{outside}?mode=memory"), True),
            (example(tree, "sqlite3.connect", "file:../out/a", cwd="ok", oks=["."]), False),
            (example(tree, "sqlite3.connect", f"file:{inside}%00/../../a"), True),
        ],
        "sqlite-path-like": [
            (example(tree, "sqlite3.connect", {"liar": [inside, outside]}), False),
            (example(tree, "open", {"liar": [inside, outside]}, "w", 0), False),
        ],
        "chdir-back": [
            (example(tree, "os.chdir", f"{tree}/cwd"), True),
            (example(tree, "os.chdir", f"{tree}/cwd", move="ok/sub"), True),
        ],
        "utime": [
            (example(tree, "os.utime", outside, NONE, NONE, -1), False),
            (example(tree, "os.utime", f"{tree}/ok/escape", NONE, NONE, -1), False),
        ],
        "unix-socket": [
            (example(tree, "socket.bind", 1, outside), False),
            (example(tree, "socket.bind", 1, "new"), False),
        ],
        "own-program": [(example(tree, "ctypes.dlopen", NONE), True)],
        "signal-0": [
            (example(tree, "os.kill", 1, 0), True),
            (example(tree, "os.killpg", 1, 0), True),
        ],
        "malformed-event": [
            (example(tree, "os.mkdir"), False),
            (example(tree, "open"), False),
            (example(tree, "os.rename", inside), False),
            (example(tree, "open", outside, NONE, NONE), False),
        ],
        "overridden-str": [
            (example(tree, "os.mkdir", {"overridden": [outside, inside]}), False),
            (example(tree, "os.mkdir", {"overridden": [inside, outside]}), True),
        ],
        "failing-path-like": [(example(tree, "os.mkdir", {"failing": None}), False)],
        "failing-repr": [
            (example(tree, "os.system", {"unshowable": None}), False),
            (example(tree, "os.mkdir", inside, {"unshowable": None}), True),
        ],
        "deleted-directory": [
            (example(tree, "os.mkdir", inside, oks=["ok", "."], gone=True), True),
            (example(tree, "os.mkdir", outside, oks=["ok", "."], gone=True), False),
        ],
    }


@pytest.mark.parametrize("key", ["mode%00", "mode%00x", "%6dode", "mode"])
def test_a_uri_in_memory_is_not_turned_into_a_file(ask, tree, key):
    """For SQLite a NUL ends the key: the last `mode` is that of a file."""
    uri = f"file:{tree}/out/new?mode=memory&{key}=rwc"
    _, ours = ask(example(tree, "sqlite3.connect", uri))
    assert ours == ["PermissionError", f"sqlite3.connect {uri!r} not in ({tree + '/ok'!r},)"]


def test_a_link_that_cannot_be_named_is_what_is_blamed(ask, tree):
    request = example(tree, "os.symlink", f"{tree}/ok/file", f"{tree}/\ud800/new", -1)
    original, ours = ask(request)
    assert ours == original
    assert "/\\ud800/new' not in " in ours[1]


def documented(*titles):
    """The names in sections of the page."""
    sections = [DOCUMENT.read_text().split(f"\n### {title}\n")[1] for title in titles]
    rows = "".join(section.split("\n#")[0] for section in sections)
    return sorted(re.findall(r"^\| `([^`]+)` \|", rows, re.MULTILINE))


@pytest.mark.parametrize("name", DIFFERENCES)
def test_difference_is_real(ask, tree, name):
    for request, allowed in examples(tree)[name]:
        original, ours = ask(request)
        assert original != ours, request
        assert (ours is None) == allowed, (request, ours)
        assert explanations(request, original, ours, tree) == [name], (request, original, ours)


def test_documented_differences_are_these():
    assert documented("From both releases", "From 0.1.0 only") == sorted(DIFFERENCES)


def test_the_tests_that_the_page_names_exist():
    named = []
    for beyond in DOCUMENT.read_text().split("\n## Beyond verdicts")[1:]:
        table = beyond.split("\n#")[0]
        found = re.findall(r"^\| `[a-z0-9-]+` \|.* `(\w+\.py)::(\w+)` \|$", table, re.MULTILINE)
        assert len(found) == table.count("\n| ") - 1
        named += found
    for file, test in named:
        text = next(TESTS.rglob(file)).read_text()
        assert re.search(rf"\b(def {test}\(|class {test}:)", text), (file, test)
