"""The corpus of ordinary snippets, and the machinery that runs it, on the packages that are here.

`make ordinary` runs all of it under all guards.
"""

from collections import Counter

import corpus
import pytest

SNIPPETS = corpus.load()


@pytest.fixture(scope="module")
def place():
    with corpus.setting() as place:
        yield place


def test_there_are_enough():
    names = Counter(snippet["name"] for snippet in SNIPPETS)
    assert len(names) >= 90
    assert max(names.values()) == 1
    packages = {package for snippet in SNIPPETS for package in snippet["packages"]}
    assert len(packages) >= 45


#: Few of each kind: all of them take minutes.
QUICK = [
    "numpy statistics and linear algebra",
    "numpy memory map",
    "pydantic models",
    "jinja2 templates",
    "yaml, orjson, msgpack",
    "click command",
    "tqdm bars",
    "requests",
    "asyncio gather, queues and timeouts",
    "thread pool",
    "process pool",
    "logging to files",
    "zip, tar and shutil",
    "files and directories",
    "pickle, shelve and copy",
    "import of local modules",
    "tempfile in the work directory",
    "sqlite3",
]


def run_where_it_can_be(name, guard, when, place):
    [snippet] = [snippet for snippet in SNIPPETS if snippet["name"] == name]
    for package in snippet["packages"]:
        pytest.importorskip(package)
    return corpus.run(snippet, guard, when, place)


@pytest.mark.parametrize("name", QUICK)
def test_bare(name, place):
    assert run_where_it_can_be(name, corpus.BARE, "inside", place) == ("pass", "")


@pytest.mark.parametrize("when", corpus.WHENS)
@pytest.mark.parametrize("name", QUICK)
def test_under_the_preset_for_notebooks(name, when, place):
    verdict, said = run_where_it_can_be(name, corpus.NOTEBOOK, when, place)
    assert verdict in corpus.PASSED, said


def snippet_of(code, **fields):
    return {"name": "made up", "packages": [], "code": code, **fields}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "verdict", "said"),
    [
        ("assert URL.startswith('http://127.0.0.1:')", "pass", ""),
        ("import os\nos.system('true')", "denied", "os.system"),
        ("import os\ntry: os.system('true')\nexcept OSError: pass", "pass*", "os.system"),
        ("assert 1 == 2, 'why'", "error", "AssertionError: why"),
        ("raise SystemExit(3)", "error", "SystemExit: 3"),
        ("import atexit, time\natexit.register(time.sleep, 60)", "hang", ""),
        ("while True: pass", "hang", ""),
    ],
)
def test_verdicts(code, verdict, said, place):
    found, text = corpus.run(snippet_of(code, timeout=3), "mk_audit", "inside", place)
    assert found == verdict
    assert text.startswith(said)


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        ("import os\nprint('gone', flush=True)\nos._exit(3)", ("error", "gone")),
        ("import os\nos.abort()", ("crash", "SIGABRT")),
    ],
)
def test_an_end_without_a_report(code, verdict, place):
    assert corpus.run(snippet_of(code), corpus.BARE, "inside", place) == verdict


def test_what_is_not_there_is_no_verdict(place):
    snippet = snippet_of("pass", packages=["nobody_has_this"])
    verdict = corpus.run(snippet, corpus.NOTEBOOK, "inside", place)
    assert verdict == ("missing", "no module named 'nobody_has_this'")
    assert corpus.went_wrong(snippet, corpus.NOTEBOOK, *verdict)
    assert corpus.went_wrong({**snippet, "optional": True}, corpus.NOTEBOOK, *verdict) is None


def test_imports_come_before_only_where_they_are_asked_for(place):
    code = "import sys\nassert ('wave' in sys.modules) is BEFORE\nimport wave"
    for when in corpus.WHENS:
        snippet = snippet_of(code.replace("BEFORE", str(when == "before")))
        assert corpus.run(snippet, "mk_audit", when, place) == ("pass", "")


def test_what_must_pass():
    plain = snippet_of("pass")
    denied = ("denied", "os.putenv: X")
    for guard in (corpus.BARE, corpus.DATA, corpus.NOTEBOOK):
        assert corpus.went_wrong(plain, guard, "pass*", "open") is None
        assert "os.putenv" in corpus.went_wrong(plain, guard, *denied)
    assert corpus.went_wrong(plain, "mk_audit", *denied) is None
