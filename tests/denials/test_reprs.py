"""Each thing says in one line which it is; a notebook shows results without believing them."""

import base64
import os
import shutil
import subprocess
from html.parser import HTMLParser

import peers
import pytest

from fastaudit_rs import (
    AuditDenied,
    Limits,
    Network,
    Policy,
    Sandbox,
    SandboxManager,
    mk_audit,
    v02,
)
from fastaudit_rs.results import Result

EVIL = "<script>alert(1)</script>\x1b[2J\x1b]0;title\x07\u202eabc\x9b31m"


def test_what_makes_guards(tmp_path):
    root = os.path.realpath(tmp_path)
    assert repr(mk_audit([tmp_path, "."], monitor_calls=False)) == (
        f"<AuditPerms of mk_audit([{root!r}, '.'])>"
    )
    made = v02.mk_audit([tmp_path], monitor_calls=False)
    assert repr(made) == f"<AuditPerms of v02.mk_audit([{root!r}])>"
    policy = Policy(write=["."], network=Network(hosts=["pypi.org"]), on_violation=print)
    shown = repr(policy.guard(monitor_calls=False))
    assert shown.startswith("<AuditPerms of Policy(write=('.',), on_violation=<built-in function ")
    assert "network=Network(hosts=('pypi.org',)" in shown
    assert "\n" not in shown
    observer = Policy().observe(monitor_calls=False)
    assert repr(observer) == "<Observer of Policy()>"


def test_guards():
    guard = mk_audit(["."], monitor_calls=False)()
    assert repr(guard) == "<Guard of mk_audit(['.']): not in force>"
    with guard:
        assert repr(guard) == "<Guard of mk_audit(['.']): in force>"
        with pytest.raises(AuditDenied):
            os.mkdir("/fastaudit-rs-test")
        assert repr(guard) == "<Guard of mk_audit(['.']): in force, 1 denied>"
    assert repr(guard) == "<Guard of mk_audit(['.']): not in force, 1 denied>"


def test_recordings(tmp_path):
    with Policy().observe(monitor_calls=False)() as recording:
        (tmp_path / "<b>").mkdir()
    assert repr(recording) == "<Recording: {'write': 1}>"
    assert "&lt;b&gt;" in recording._repr_html_()
    assert "<b>" not in recording._repr_html_()


class TestSandboxes:
    def test_sandboxes(self):
        with Sandbox(Policy(network=False), confine="audit") as sandbox:
            place = repr(str(sandbox.directory))
            assert repr(sandbox) == f"<Sandbox in {place}: Policy(read=(), network=False)>"
        assert repr(sandbox).endswith(", closed>")

    def test_pools(self):
        with Sandbox(Policy(), confine="audit") as sandbox, sandbox.pool(1) as pool:
            place = repr(str(sandbox.directory))
            assert repr(pool) == f"<Pool of 1 in {place}>"
        assert repr(pool) == f"<Pool of 1 in {place}, closed>"

    def test_managers(self):
        with SandboxManager(confine="audit") as manager:
            assert repr(manager) == "<SandboxManager: no sandboxes>"
            manager.create("a")
            manager.create("b")
            assert repr(manager) == "<SandboxManager: 'a', 'b'>"
        assert repr(manager) == "<SandboxManager: no sandboxes, closed>"

    @pytest.mark.slow
    def test_results(self):
        with Sandbox(Policy(), Limits(wall_seconds=5), confine="audit") as sandbox:
            fine = sandbox.run("print('a'); open('b', 'w').close()")
            denied = sandbox.run("import os; os.mkdir('/fastaudit-rs-test')")
            assert repr(fine) == (
                f"<Result: exit status 0, 1 file, {fine.duration:.2f} s, not held by the kernel>"
            )
            assert repr(denied).startswith("<Result: exit status 77, 1 denied, ")
            assert fine == fine
            assert "killed by wall_seconds" in repr(sandbox.run("import time; time.sleep(60)"))

    def test_what_code_wrote_is_text_alone(self):
        code = f"""
import sys, os
evil = {EVIL!r}
print(evil)
print(evil, file=sys.stderr)
open(evil.replace("/", "-"), "w").close()
try: os.mkdir("/" + evil)
except PermissionError: pass
evil
"""
        with Sandbox(Policy(), confine="audit") as sandbox:
            result = sandbox.run(code, value=True)
        assert EVIL in result.stdout
        assert "\x1b" not in repr(result)
        shown = result._repr_html_()
        for head in ("stdout", "stderr", "value", "denied", "files"):
            assert f"<b>{head}</b><pre>" in shown
        assert shown.count("&lt;script&gt;") == 5
        assert "<script" not in shown
        assert not any(odd in shown for odd in "\x1b\x07\x9b\u202e")

    def test_much_is_cut(self):
        with Sandbox(Policy(), confine="audit") as sandbox:
            result = sandbox.run("print('x' * 50_000)")
        assert len(result._repr_html_()) < 11_000
        assert "characters more" in result._repr_html_()


class Tags(HTMLParser):
    """The tags of a page, as a browser reads them, and their attributes."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def page_of(*display, **fields):
    return Result(0, "", "", 0.0, None, display=list(display), **fields)._repr_html_()


class TestDisplays:
    PNG = b"\x89PNG\r\n\x1a\nrest"
    OURS = frozenset({"div", "p", "b", "pre"})

    def test_an_image(self):
        shown = Tags(page_of({"image/png": self.PNG, "text/plain": "<Figure>"}))
        [image] = [attributes for tag, attributes in shown.tags if tag == "img"]
        kind, data = image["src"].split(",")
        assert (kind, base64.b64decode(data)) == ("data:image/png;base64", self.PNG)
        assert {tag for tag, _ in shown.tags} <= {"img", *self.OURS}

    @pytest.mark.parametrize(
        "thing",
        [
            {"image/png": b"<svg onload=alert(1)>"},
            {"image/png": EVIL},
            {"image/svg+xml": "<svg onload='alert(1)'></svg>"},
            {"text/markdown": EVIL},
            {"text/plain": EVIL, "image/svg+xml": "<svg/>"},
            {"text/html": EVIL.encode()},
            {'"><script>': b""},
            {},
        ],
    )
    def test_others_are_text(self, thing):
        shown = Tags(page_of(thing))
        assert {tag for tag, _ in shown.tags} <= self.OURS
        assert not any(odd in shown.text for odd in "\x1b\x07\x9b\u202e")

    @pytest.mark.parametrize(
        "markup",
        [
            "<table><tr><td>1</td></tr></table>",
            EVIL,
            '"></iframe><script>alert(1)</script>',
            "'></iframe><img src=x onerror=alert(1)>",
            '" sandbox="allow-scripts" x="',
            "&quot;&gt;&lt;script&gt;",
        ],
    )
    def test_markup_is_in_a_frame_without_scripts(self, markup):
        shown = Tags(page_of({"text/html": markup}))
        [frame] = [attributes for tag, attributes in shown.tags if tag == "iframe"]
        assert {tag for tag, _ in shown.tags} <= {"iframe", *self.OURS}
        assert frame["sandbox"] == ""
        assert frame["srcdoc"].endswith(markup)
        assert shown.text == Tags(page_of({"text/html": ""})).text
        policy = Tags(frame["srcdoc"]).tags[1][1]
        assert policy["http-equiv"] == "Content-Security-Policy"
        assert policy["content"].startswith("default-src 'none'; ")

    def test_much_is_left_out(self):
        large = {"text/html": "&" * 2_000_000}
        shown = page_of(large, {"text/plain": "small"}, *[{"image/png": self.PNG}] * 100_000)
        assert len(shown) < 5_100_000
        assert "too large to be shown" in shown and "small" in shown
        assert "more is in result.display" in shown

    def test_an_error(self):
        with Policy().session(monitor_calls=False) as session:
            ran = session.run("def f():\n    raise ValueError('<b>\x1b')\nf()")
        shown = ran._repr_html_()
        assert "<b>error</b><pre>Traceback (most recent call last):" in shown
        assert "ValueError: &lt;b&gt;\\x1b" in shown

    def test_a_number_of_too_many_digits(self):
        shown = page_of(value=10**5000)
        assert "<b>value</b><pre>&lt;int: Exceeds the limit" in shown

    def test_a_value_that_is_displayed_is_shown_once(self):
        code = "class A:\n  def _repr_html_(self): return '<b>'\n  __repr__ = lambda a: 'A!'\nA()"
        with Policy().session(monitor_calls=False) as session:
            shown = session.run(code)._repr_html_()
            assert "<iframe" in shown and "<b>value</b>" not in shown
            assert "<b>value</b><pre>2</pre>" in session.run("1 + 1")._repr_html_()


@pytest.mark.slow
def test_in_a_kernel(tmp_path):
    kernels = pytest.importorskip("kernels")
    environment = peers.environment(tmp_path, **kernels.home_of(tmp_path))
    with kernels.started(tmp_path, environment) as kernel:
        ran = kernel(
            "from fastaudit_rs import Policy, Sandbox, mk_audit\n"
            "sandbox = Sandbox(Policy(), confine='audit')\n"
            f"sandbox.run({f'print({EVIL!r})'!r})"
        )
        assert (ran.status, ran.error) == ("ok", "")
        [shown] = ran.data
        assert shown["text/plain"].startswith("<Result: exit status 0, ")
        assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[2J" in shown["text/html"]
        assert "<script" not in shown["text/html"]
        assert kernel("mk_audit(['.'])").value == "<AuditPerms of mk_audit(['.'])>"
        ran = kernel("with mk_audit(['.']): pass")
        assert "call it, `with mk_audit([...])():`" in ran.error
        completed = kernel.reply(kernel.client.complete("import fastaudit_rs; fastaudit_rs.S"))
        found = {match.rpartition(".")[2] for match in completed["matches"]}
        assert {"Sandbox", "SandboxError", "SandboxManager"} <= found


def test_a_denial_acts_on_no_terminal(tmp_path):
    """Names are the code's: none moves the cursor, in the text and in the line at the end."""
    from fastaudit_rs.timeline import Act
    from fastaudit_rs.tools.denials import in_one_line
    from fastaudit_rs.tools.pytest_report import Reached

    with Policy().guard()() as guard, pytest.raises(AuditDenied):
        open(f"{tmp_path}/\x1b[2J\u202ea", "w")
    [denied] = guard.violations
    reached = Reached("test", tmp_path)
    assert reached.note(denied)
    told = (str(denied), in_one_line(denied), repr(Act(None, "write", "a\n\x1b", "denied")))
    told += (*reached.lines, denied.hint)
    assert not any(odd in text for text in told for odd in "\x1b\u202e")
    assert "\n" not in told[1] + told[2]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash reads the line")
def test_a_hint_of_options_can_be_pasted(tmp_path):
    """A shell reads the name as it is, and the terminal sees none of it."""
    odd = f"{tmp_path}/\x1b[2J1\n\u202ea'b\\ c\x9b"
    os.mkdir(odd)
    with Policy()._told_in("options").guard()() as guard, pytest.raises(AuditDenied):
        open(f"{odd}/file", "w")
    hint = guard.violations[0].hint
    assert hint.isprintable() and hint.startswith("--write $'")
    read = subprocess.run(["bash", "-c", f"printf %s {hint.split(' ', 1)[1]}"], capture_output=True)
    assert read.stdout.decode() == f"{odd}/file"
