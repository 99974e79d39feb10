"""The package itself, as it is imported."""

import ast
import inspect
import itertools
import operator
import pydoc

import programs
import pytest
from repository import ROOT

import fastaudit_rs
from fastaudit_rs import Policy, _native
from fastaudit_rs.sessions.here import HereSession

#: The packages that only extras bring.
EXTRAS = ("IPython", "cloudpickle", "distributed", "docker", "pytest", "rich", "sandlock", "shtab")


def test_all_names_are_there_without_extras():
    code = f"""
import sys
sys.modules |= dict.fromkeys({EXTRAS})
from fastaudit_rs import *
import fastaudit_rs
print({{*fastaudit_rs.__all__}} - {{*dir()}})
"""
    done = programs.ran(code)
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_dir_has_what_is_public_and_nothing_else():
    names = [name for name in dir(fastaudit_rs) if not name.startswith("__")]
    public = [name for name in fastaudit_rs.__all__ if not name.startswith("__")]
    assert names == sorted(public)


def test_help_has_what_is_imported_later():
    text = pydoc.plain(pydoc.render_doc(fastaudit_rs))
    for name in ("class Sandbox(", "class Limits(", "class SandboxManager(", "class SandboxError("):
        assert name in text
    for name in ("guarded(", "install_as_fastaudit(", "mk_audit("):
        assert f"    {name}" in text
    assert "_LATER" not in text


def documented():
    """The names in the stub that have a docstring, and it; CPython says what special methods do."""
    stub = (ROOT / "fastaudit_rs" / "_native.pyi").read_text()
    for node in ast.parse(stub).body:
        members = node.body if isinstance(node, ast.ClassDef) else ()
        for field, below in itertools.pairwise(members):
            is_field = isinstance(field, ast.AnnAssign) and ast.unparse(field).count(": Final[")
            if is_field and isinstance(below, ast.Expr):
                yield f"{node.name}.{field.target.id}", inspect.cleandoc(below.value.value)
        for member in (node, *members):
            is_special = getattr(member, "name", "").endswith("__")
            if is_special or not isinstance(member, (ast.ClassDef, ast.FunctionDef)):
                continue
            if ast.get_docstring(member):
                names = (node.name,) if member is node else (node.name, member.name)
                yield ".".join(names), ast.get_docstring(member)


@pytest.mark.parametrize(("name", "docstring"), list(documented()))
def test_help_says_what_the_stub_says(name, docstring):
    """The build takes the docstrings of the native module from the stub."""
    assert inspect.getdoc(operator.attrgetter(name)(_native)) == docstring


def test_checkers_of_types_know_all_arguments():
    """They catch ``policy.replace(writ=[])`` where the stub names the arguments."""
    stub = ast.parse((ROOT / "fastaudit_rs" / "_native.pyi").read_text())
    [policy] = (each for each in stub.body if getattr(each, "name", "") == "Policy")
    found = {
        each.name: {one.arg for one in (*each.args.args[1:], *each.args.kwonlyargs)}
        for each in policy.body
        if isinstance(each, ast.FunctionDef) and each.args.kwarg is None
    }
    fields = {name for name, one in vars(Policy).items() if inspect.isgetsetdescriptor(one)}
    assert found["__new__"] == found["replace"] == fields
    here = inspect.signature(HereSession).parameters.keys() - {"policy", "options"}
    assert found["session"] == here | found["guard"]


def test_modules_that_are_public_stay_importable():
    code = """
import fastaudit_rs.as_fastaudit, fastaudit_rs.calls, fastaudit_rs.core, fastaudit_rs.sandbox
import fastaudit_rs.sandbox_hooks, fastaudit_rs.v02.core, fastaudit_rs.v02.hooks
print(fastaudit_rs.sandbox.Sandbox is fastaudit_rs.Sandbox)
"""
    done = programs.ran(code)
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("from fastaudit_rs import S", {"Sandbox", "SandboxError", "SandboxManager", "Session"}),
        ("from fastaudit_rs import R", {"Recording", "Request", "Result"}),
        ("from fastaudit_rs import ", {*fastaudit_rs.__all__}),
        ("import fastaudit_rs\nfastaudit_rs.Li", {"Limits"}),
        (
            "from fastaudit_rs import Policy, Sandbox\nSandbox(Policy()).",
            {"run", "arun", "close", "explain", "list_files", "pool", "read_file", "write_file"},
        ),
        ("from fastaudit_rs import Sandbox\nSandbox().run('1').", {"stdout", "success", "value"}),
        ("from fastaudit_rs import mk_audit\nmk_audit(['.']).", {"set_data", "tool_id"}),
    ],
)
def test_what_is_completed_without_running(code, names):
    jedi = pytest.importorskip("jedi")
    found = {completion.name for completion in jedi.Script(code).complete()}
    assert names <= found


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mkaudit", "did you mean 'mk_audit'?"),
        ("sandbx", "did you mean 'Sandbox'?"),
        ("track_call", "fastaudit_rs.v02 has it"),
        ("nothing_like_it", "module 'fastaudit_rs' has no attribute 'nothing_like_it'"),
    ],
)
def test_a_name_that_it_does_not_have(name, says):
    with pytest.raises(AttributeError) as raised:
        getattr(fastaudit_rs, name)
    assert str(raised.value).endswith(says)
    assert (raised.value.name, raised.value.obj) == (name, fastaudit_rs)
