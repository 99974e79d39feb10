"""Each thing says in one line which it is; a notebook shows results without believing them."""

import os

import peers
import pytest

from fastaudit_rs import AuditDenied, Network, Policy, mk_audit, v02

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


@pytest.mark.skipif(os.name != "posix", reason="sandboxes need POSIX")
class TestSandboxes:
    def test_sandboxes(self):
        from fastaudit_rs import Sandbox

        with Sandbox(Policy(network=False), confine="audit") as sandbox:
            place = repr(str(sandbox.directory))
            assert repr(sandbox) == f"<Sandbox in {place}: Policy(read=(), network=False)>"
        assert repr(sandbox).endswith(", closed>")

    def test_pools(self):
        from fastaudit_rs import Sandbox

        with Sandbox(Policy(), confine="audit") as sandbox, sandbox.pool(1) as pool:
            place = repr(str(sandbox.directory))
            assert repr(pool) == f"<Pool of 1 in {place}>"
        assert repr(pool) == f"<Pool of 1 in {place}, closed>"

    def test_managers(self):
        from fastaudit_rs import SandboxManager

        with SandboxManager(confine="audit") as manager:
            assert repr(manager) == "<SandboxManager: no environments>"
            manager.create("a")
            manager.create("b")
            assert repr(manager) == "<SandboxManager: 'a', 'b'>"
        assert repr(manager) == "<SandboxManager: no environments, closed>"

    def test_results(self):
        from fastaudit_rs import Limits, Sandbox

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
        from fastaudit_rs import Sandbox

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
        from fastaudit_rs import Sandbox

        with Sandbox(Policy(), confine="audit") as sandbox:
            result = sandbox.run("print('x' * 50_000)")
        assert len(result._repr_html_()) < 11_000
        assert "characters more" in result._repr_html_()


@pytest.mark.skipif(os.name != "posix", reason="sandboxes need POSIX")
def test_in_a_kernel(tmp_path):
    kernels = pytest.importorskip("kernels")
    environment = peers.environment(tmp_path, HOME=str(tmp_path), IPYTHONDIR=str(tmp_path / "i"))
    kernel = kernels.Kernel(tmp_path, environment)
    try:
        ran = kernel(
            "from fastaudit_rs import Policy, Sandbox, mk_audit\n"
            "sandbox = Sandbox(Policy(), confine='audit')\n"
            f"sandbox.run({f'print({EVIL!r})'!r})"
        )
        assert (ran.status, ran.error) == ("ok", "")
        [shown] = ran.data
        assert shown["text/plain"].startswith("<Result: exit status 0, ")
        assert "&lt;script&gt;alert(1)&lt;/script&gt;␛[2J" in shown["text/html"]
        assert "<script" not in shown["text/html"]
        assert kernel("mk_audit(['.'])").value == "<AuditPerms of mk_audit(['.'])>"
        ran = kernel("with mk_audit(['.']): pass")
        assert "call it, `with mk_audit([...])():`" in ran.error
        completed = kernel.reply(kernel.client.complete("import fastaudit_rs; fastaudit_rs.S"))
        found = {match.rpartition(".")[2] for match in completed["matches"]}
        assert {"Sandbox", "SandboxError", "SandboxManager"} <= found
    finally:
        kernel.stop()
