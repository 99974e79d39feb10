"""Tracebacks of steps that may read next to nothing: making them is no act of the step."""

import pytest

from fastaudit_rs import Limits, Policy, Sandbox

#: Steps that raise, and the lines of them that the traceback shows.
STEPS = {
    "an expression": ("1 / 0", "1 / 0"),
    "a statement of one line": ("def f():\n    raise ValueError\nf()", "raise ValueError"),
    "an interrupt": ("raise KeyboardInterrupt", "raise KeyboardInterrupt"),
    "several lines": ("x = [\n  1,\n  (2).a,\n]", "(2).a"),
    "a cause": ("try:\n 1/0\nexcept Exception as e:\n raise ValueError from e", "raise ValueError"),
    "a syntax error": ("x = (", "x = ("),
    "text that is tried": ("import ast\nast.parse('(')", "ast.parse"),
    "text that is run": ("exec('x = (')", "exec("),
}


@pytest.fixture(scope="module", params=["here", "asked", "sandbox", "sandbox asked"])
def closed(request, tmp_path_factory):
    """A session that may read nothing but Python itself, and the list of its questions."""
    directory, elsewhere = map(tmp_path_factory.mktemp, ("closed", "elsewhere"))
    asked = []

    def ask(denied):
        asked.append(denied.path)
        return "deny"

    options = {"on_ask": ask} if request.param.endswith("asked") else {}
    policy = Policy(write=[str(directory)], read=[], packages=["numpy", "pandas"])
    if request.param.startswith("sandbox"):
        pytest.importorskip("sandlock")
        with Sandbox(policy, Limits(wall_seconds=20)) as sandbox:
            with sandbox.session(**options) as session:
                yield session, asked
    else:
        # Not where it may read: the file of a text would be in the current directory.
        with policy.session(directory=elsewhere, **options) as session:
            yield session, asked


@pytest.mark.parametrize("name", STEPS)
def test_making_a_traceback_is_no_act_of_the_step(closed, name):
    session, asked = closed
    code, line = STEPS[name]
    result = session.run(code)
    assert result.error is not None
    assert line in result.error.traceback
    assert (result.violations, asked) == ([], [])


def test_a_traceback_shows_no_lines_that_may_not_be_read(closed, tmp_path_factory):
    session, asked = closed
    file = tmp_path_factory.mktemp("secret") / "secret.py"
    file.write_text("the_secret = 1\n")
    result = session.run(f"exec(compile('1 / 0', {str(file)!r}, 'exec'))")
    assert f'File "{file}", line 1' in result.error.traceback
    assert "the_secret" not in result.error.traceback
    assert (result.violations, asked) == ([], [])


def test_a_denial_is_told_once(closed):
    session, asked = closed
    result = session.run("def f():\n    open('/etc/hostname')\nf()")
    assert [denied.path for denied in result.violations] == ["/etc/hostname"]
    assert asked in ([], ["/etc/hostname"])
    asked.clear()
