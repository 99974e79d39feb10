"""`Policy`: imports, what importing may do, native code, events that nobody knows."""

import os
import sys
import textwrap

import programs
import pytest

from fastaudit_rs import AuditDenied, Policy


@pytest.fixture
def run(tmp_path):
    """`run(code, **fields)`: runs code under a policy in a process of its own.

    Its output is returned. The code may use `os`, `sys` and `denied(function)`, which tells the
    rule by which a call of it is denied.
    """

    def run(code, monitor_calls=False, before="", after="", **fields):
        program = f"""
import os, sys
from fastaudit_rs import AuditDenied, Policy

def denied(function, *args, **options):
    try:
        function(*args, **options)
    except AuditDenied as error:
        return error.rule

{before}
with Policy(**{fields!r}).guard(monitor_calls={monitor_calls})() as guard:
    exec({textwrap.dedent(code)!r})
{after}
"""
        environment = {**os.environ, "PYTHONPATH": ""}
        return programs.printed(program, cwd=tmp_path, env=environment).split()

    return run


class TestImports:
    def test_those_that_are_allowed(self, run):
        """With what they import in turn, and what is imported already."""
        code = """
        import json, sys
        import json.decoder
        from xml.etree import ElementTree
        import importlib
        print(denied(__import__, "wave"), denied(importlib.import_module, "wave"))
        print(denied(__import__, "xmlrpc.client"))
        """
        assert run(code, imports=["json", "xml.etree", "importlib"]) == ["imports"] * 3

    def test_by_importlib(self, run, tmp_path):
        """This raises no `import` event of its own, whatever kind of module it is."""
        (tmp_path / "own.py").write_text("")
        code = """
        import importlib
        for name in ("wave", "_symtable", "__phello__", "_lsprof", "own"):
            print(denied(importlib.import_module, name))
        """
        before = "sys.path.insert(0, '.'); import importlib.util"
        assert run(code, before=before, imports=["importlib"]) == ["imports"] * 5
        allowed = ["importlib", "own"]
        assert run(code, before=before, imports=allowed) == ["imports"] * 4 + ["None"]

    @pytest.mark.parametrize(
        "name", ["importlib.util", "importlib.metadata", "importlib.resources", "pkgutil", "runpy"]
    )
    def test_modules_that_help_to_import(self, run, name):
        """They import what they need, as others do."""
        code = f"""
        print(denied(__import__, "{name}"), denied(__import__, "wave"))
        import importlib
        print(denied(importlib.import_module, "wave"))
        """
        before = "for name in [*sys.modules]:\n    if 'importlib.' in name: del sys.modules[name]"
        assert (
            run(code, before=before, imports=[name, "importlib"]) == "None imports imports".split()
        )

    def test_one_that_importlib_is_asked_for_is_named(self, run):
        code = """
        import importlib
        try:
            importlib.import_module("wave")
        except PermissionError as error:
            print(error.event, str(error).splitlines()[0], error.suggestion["imports"])
        """
        printed = "import Denied: import the module 'wave' ['importlib', 'wave']"
        assert run(code, imports=["importlib"]) == printed.split()

    def test_one_that_importlib_is_asked_for_is_learned(self, run):
        before = """
import importlib
with Policy(imports=["json"]).observe()() as recording:
    importlib.import_module("wave")
learned = recording.suggest()
print("wave" in learned.imports, learned.import_allow)
"""
        assert run("", before=before) == ["True", "()"]

    def test_the_host_finds_its_modules_after_the_guard(self, run, tmp_path):
        """What the import system could not list it would take for empty from then on."""
        (tmp_path / "own.py").write_text("")
        program = """
        sys.path_importer_cache.clear()
        try:
            import own
        except AuditDenied as error:
            print(error.event)
        """
        before = "sys.path.insert(0, os.getcwd())"
        after = "import own; print(own.__name__)"
        assert run(program, before=before, after=after, read=["/nowhere"]) == ["open", "own"]
        assert run("print(denied(os.listdir, os.getcwd()))", read=["/nowhere"]) == ["read"]

    def test_what_a_function_imports_when_it_is_called(self, run):
        """Also a standard library function, which is not what the guarded code chose."""
        code = """
        import decimal
        print(decimal.Decimal("1").__reduce__()[0].__name__)
        import calendar
        print("fine")
        """
        assert run(code, imports=["decimal", "calendar"]) == ["Decimal", "fine"]

    def test_own_modules(self, run, tmp_path):
        (tmp_path / "own.py").write_text("import wave")
        code = "print(denied(__import__, 'own'))"
        before = "sys.path.insert(0, '.')"
        assert run(code, before=before, imports=["json"]) == ["imports"]
        # It imports what the guarded code may not: it is no installed module.
        assert run(code, before=before, imports=["own"]) == ["imports"]
        assert run(code, before=before, imports=["own", "wave"]) == ["None"]

    def test_pickles(self, run):
        code = r"""
        import pickle
        print(denied(pickle.loads, b"cwave\nopen\n."))
        """
        assert run(code, imports=["pickle"]) == ["imports"]


PACKAGE = """
import os, threading
os.environ["SET_BY_IT"] = "1"
with open("cache", "w") as file:
    file.write("x")
started = threading.Thread(target=os.getpid)
started.start()
started.join()

def later():
    os.environ["SET_LATER"] = "1"
"""


class TestImportAllow:
    @pytest.fixture
    def installed(self, tmp_path):
        """A package that is installed, and what makes it one."""
        directory = tmp_path / "site-packages"
        directory.mkdir()
        (directory / "busy.py").write_text(PACKAGE)
        (directory / "outer.py").write_text("import busy")
        return f"sys.path.insert(0, {str(directory)!r})"

    def test_what_importing_does_passes(self, run, installed):
        code = """
        import busy
        print(os.environ["SET_BY_IT"], guard.violations, denied(busy.later))
        """
        for names in (["busy"], ["*"]):
            assert run(code, before=installed, import_allow=names) == ["1", "[]", "env"]

    def test_also_in_turn(self, run, installed):
        code = "import outer; print(os.environ['SET_BY_IT'])"
        assert run(code, before=installed, import_allow=["outer"]) == ["1"]

    def test_by_default_it_does_not(self, run, installed):
        code = "print(denied(__import__, 'busy'), 'SET_BY_IT' in os.environ)"
        assert run(code, before=installed) == ["env", "False"]
        assert run(code, before=installed, import_allow=["other"]) == ["env", "False"]

    def test_what_is_blocked_stays_so(self, run, installed):
        code = "print(denied(__import__, 'busy'))"
        names = ["busy"]
        assert run(code, before=installed, import_allow=names, block=["cache"]) == ["block"]
        assert run(code, before=installed, import_allow=names, protect=["cache"]) == ["protect"]
        blocked = {"block": ["busy"]}
        assert run(code, before=installed, import_allow=names, imports=blocked) == ["imports"]

    def test_code_of_ones_own_is_no_package(self, run, tmp_path):
        """A file of that name that the guarded code may have written itself."""
        (tmp_path / "busy.py").write_text(PACKAGE)
        code = "print(denied(__import__, 'busy'))"
        before = "sys.path.insert(0, '.')"
        assert run(code, before=before, import_allow=["busy", "*"]) == ["env"]

    def test_a_name_in_a_frame_is_no_import(self, run, installed):
        code = """
        def _find_and_load(name, import_):
            os.environ["A"] = "1"
        print(denied(_find_and_load, "busy", None))
        """
        assert run(code, before=installed, import_allow=["busy"]) == ["env"]

    def test_guards_stay_out_of_reach(self, run, tmp_path, installed):
        (tmp_path / "site-packages/busy.py").write_text("import sys; sys.addaudithook(print)")
        code = "print(denied(__import__, 'busy') is None, len(guard.violations))"
        assert run(code, before=installed, import_allow=["busy"]) == ["True", "1"]

    @pytest.mark.parametrize("package", ["numpy", "pandas", "lxml.etree"])
    def test_real_packages(self, run, package):
        pytest.importorskip(package)
        code = f"""
        import {package}
        print("fine", [denied.message for denied in guard.violations])
        """
        name = package.split(".")[0]
        assert run(code, import_allow=[name]) == ["fine", "[]"]


class TestNative:
    def test_where_all_may_be_called_nothing_is_watched(self):
        code = """
from fastaudit_rs import Policy, v02
with Policy(native=True).guard()():
    print(v02.audit_state()["monitor_on"], v02.audit_state()["tool_id"])
with Policy(native=["numpy"]).guard()():
    print(v02.audit_state()["monitor_on"])
"""
        assert programs.printed(code) == "0 None\n1\n"


class TestUnknownEvents:
    def test_the_host_may_allow_one(self):
        policy = Policy(unknown_events="deny")
        asked = []

        def before_deny(event, args, frame, message, data):
            asked.append(event)
            return event == "tests.of.ours"

        with policy.guard(before_deny, monitor_calls=False)():
            sys.audit("tests.of.ours")
            with pytest.raises(AuditDenied):
                sys.audit("tests.of.others")
        assert asked == ["tests.of.ours", "tests.of.others"]
