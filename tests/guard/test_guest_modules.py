"""Modules that guarded code wrote or made: they have no rights of a tool.

Each way makes a module whose `act(path)` writes a file where guarded code may not. Nothing is
judged but the file.
"""

import contextlib
import importlib
import importlib.machinery
import sys
import textwrap
import types

import programs
import pytest

from fastaudit_rs import AuditDenied, Policy

#: The module that the guest would have the host run.
PLANTED = "def act(path): open(path, 'w').close()"

#: What the ways share. `root` is a directory that the guest may write, on `sys.path`.
BEGIN = f"""
import ast, importlib.abc, importlib.machinery, importlib.util, marshal, os, sys, zipfile

source = {PLANTED!r}

def code_named(name):
    return compile(source, name, "exec")

def save(path, code):
    with open(path, "wb") as file:
        file.write(importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code))

def find_by(loader):
    class Finder:
        @staticmethod
        def find_spec(name, *given):
            if name == "planted":
                return importlib.machinery.ModuleSpec(name, loader, origin=os.__file__)
    sys.meta_path.insert(0, Finder)
"""

#: By a short description: the guest's own code.
WAYS = {
    "source": "with open(root + '/planted.py', 'w') as file: file.write(source)",
    "a package": """
        os.mkdir(root + '/planted')
        with open(root + '/planted/__init__.py', 'w') as file: file.write(source)
    """,
    "code without source": "save(root + '/planted.pyc', code_named('<x>'))",
    "the same, of a frozen module's name": "save(root + '/planted.pyc', code_named('<frozen os>'))",
    "the same, of an installed module's name": (
        "save(root + '/planted.pyc', code_named(os.__file__))"
    ),
    "an archive": """
        save(root + '/planted.pyc', code_named('<x>'))
        with zipfile.ZipFile(root + '/archive.zip', 'w') as archive:
            archive.write(root + '/planted.pyc', 'planted.pyc')
        os.remove(root + '/planted.pyc')
        sys.path.insert(0, root + '/archive.zip')
    """,
    "a loader of its own": """
        class Loader(importlib.abc.InspectLoader):
            def get_source(self, name): return source
            def get_code(self, name): return code_named('<x>')
        find_by(Loader())
    """,
    "a tree of an installed module's name": """
        class Loader(importlib.abc.InspectLoader):
            def get_source(self, name): return source
            def get_code(self, name): return compile(ast.parse(source), os.__file__, "exec")
        find_by(Loader())
    """,
    "a loader of the library that says another file": """
        class Loader(importlib.machinery.SourceFileLoader):
            def get_data(self, path): return source.encode()
            def path_stats(self, path): raise OSError
        find_by(Loader("planted", os.__file__))
    """,
    "a method of one loader": """
        loader = importlib.machinery.SourceFileLoader("planted", os.__file__)
        loader.get_code = lambda name: code_named('<x>')
        find_by(loader)
    """,
    "a method of all loaders": """
        machinery = importlib.machinery.SourceFileLoader
        before = machinery.get_code
        def get_code(self, name):
            return code_named('<x>') if name == "planted" else before(self, name)
        machinery.get_code = get_code
        find_by(machinery("planted", os.__file__))
    """,
    "a function of the import system": """
        machinery = sys.modules['_frozen_importlib_external']
        machinery.cache_from_source = lambda path, **given: root + '/code.pyc'
        machinery._classify_pyc = lambda *given: 0
        machinery._validate_timestamp_pyc = lambda *given: None
        save(root + '/code.pyc', code_named('<x>'))
        find_by(importlib.machinery.SourceFileLoader("planted", os.__file__))
    """,
    "code of a module of the host, elsewhere": """
        sys.pycache_prefix = root
        path = importlib.util.cache_from_source(host + '/planted.py')
        os.makedirs(os.path.dirname(path))
        with open(path, "wb") as file:
            stat = os.stat(host + '/planted.py')
            head = [0, int(stat.st_mtime), stat.st_size & 0xFFFFFFFF]
            file.write(importlib.util.MAGIC_NUMBER)
            file.write(b"".join(part.to_bytes(4, "little") for part in head))
            file.write(marshal.dumps(code_named(host + '/planted.py')))
    """,
}
#: A module of the host's own, which the last of them is taken for.
NEEDS_HOST = "code of a module of the host, elsewhere"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The directories `root` and `host`, both on `sys.path`; `out` is for the host alone."""
    for name in ("root", "host", "out"):
        (tmp_path / name).mkdir()
        if name != "out":
            monkeypatch.syspath_prepend(str(tmp_path / name))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "pycache_prefix", sys.pycache_prefix)
    loader = importlib.machinery.SourceFileLoader
    system = sys.modules["_frozen_importlib_external"]
    before = dict(vars(system))
    had = "get_code" in vars(loader)
    try:
        yield tmp_path
    finally:
        vars(system).update(before)
        if not had and "get_code" in vars(loader):
            del loader.get_code
        sys.modules.pop("planted", None)


def prepare(place, way, policy):
    if way == NEEDS_HOST:
        (place / "host/planted.py").write_text("def act(path): pass")
    names = {"root": str(place / "root"), "host": str(place / "host")}
    with policy.guard(monitor_calls=False)():
        exec(BEGIN + textwrap.dedent(WAYS[way]), names)
    importlib.invalidate_caches()


@pytest.mark.parametrize("way", WAYS)
class TestGuestImports:
    """The guest imports its module, and a tool calls what it is handed."""

    def test_it_is_guarded(self, place, way):
        policy = Policy(write=[place / "root"])
        call = policy.tool(lambda function, *args: function(*args), raw=True)
        prepare(place, way, policy)
        with policy.guard(monitor_calls=False)(), contextlib.suppress(AuditDenied):
            planted = importlib.import_module("planted")
            call(planted.act, str(place / "out/a"))
        assert not (place / "out/a").exists()


@pytest.mark.parametrize("way", WAYS)
class TestTools:
    """A tool imports the module in its body."""

    @pytest.mark.parametrize("own", [False, True])
    def test_it_is_guarded(self, place, way, own):
        policy = Policy(write=[place / "root"])
        rights = Policy(write=[place]) if own else policy

        def save(path):
            import planted

            planted.act(path)

        save = rights.tool(save) if own else policy.tool(save)
        prepare(place, way, policy)
        with policy.guard(monitor_calls=False)(), contextlib.suppress(AuditDenied):
            save(str(place / "out/a"))
        assert not (place / "out/a").exists()

    def test_without_a_guard_it_acts(self, place, way):
        """The ways are in earnest."""
        if way == NEEDS_HOST:
            (place / "host/planted.py").write_text("def act(path): pass")
        names = {"root": str(place / "root"), "host": str(place / "host")}
        exec(BEGIN + textwrap.dedent(WAYS[way]), names)
        importlib.invalidate_caches()
        importlib.import_module("planted").act(str(place / "out/a"))
        assert (place / "out/a").exists()


class TestFilesOfTheHost:
    """Modules that guarded code cannot have written keep the rights of the tool."""

    @pytest.mark.parametrize(
        "first", ["", "import planted", "import ast; compile(ast.parse('1'), 'a', 'exec')"]
    )
    def test_a_module_beside_the_roots(self, place, first):
        (place / "host/planted.py").write_text(PLANTED)
        policy = Policy(write=[place / "root"])

        @policy.tool
        def save(path):
            import planted

            planted.act(path)

        with policy.guard()():
            exec(first, {})
            save(str(place / "out/a"))
        assert (place / "out/a").exists()

    def test_a_package_changed_a_finder(self, place, monkeypatch):
        """importlib_metadata takes this method from the finder of files as it is imported."""
        (place / "host/planted.py").write_text(PLANTED)
        policy = Policy(write=[place / "root"])
        call = policy.tool(lambda path: importlib.import_module("planted").act(path))
        guard = policy.guard(monitor_calls=False)
        with guard():
            pass
        finder = importlib.machinery.PathFinder
        monkeypatch.setattr(finder, "find_distributions", None, raising=False)
        with guard():
            call(str(place / "out/a"))
        assert (place / "out/a").exists()

    def test_whatever_the_guest_unmarshalled_or_compiled(self, place):
        (place / "host/planted.py").write_text(PLANTED)
        policy = Policy(write=[place / "root"])
        call = policy.tool(lambda path: importlib.import_module("planted").act(path))
        with policy.guard(monitor_calls=False)():
            exec(
                "import ast, marshal, planted\n"
                "marshal.loads(marshal.dumps(compile('1', planted.__file__, 'exec')))\n"
                "compile(ast.parse('1'), planted.__file__, 'exec')",
                {},
            )
            call(str(place / "out/a"))
        assert (place / "out/a").exists()

    @pytest.mark.parametrize("write", [False, True])
    def test_an_installed_package_in_a_root(self, tmp_path, write):
        """A virtual environment lies in the project, which may be written."""
        packages = tmp_path / "site-packages"
        packages.mkdir()
        (packages / "planted.py").write_text("def act(path): pass" if write else PLANTED)
        (tmp_path / "out").mkdir()
        programs.printed(f"""
            import contextlib, os, sys
            packages = {str(packages)!r}
            sys.path.insert(0, packages)
            from fastaudit_rs import AuditDenied, Policy
            policy = Policy(write=[packages])

            @policy.tool
            def save(path):
                import planted
                planted.act(path)

            with policy.guard(monitor_calls=False)(), contextlib.suppress(AuditDenied):
                if {write}:
                    with open(packages + "/planted.py", "w") as file:
                        file.write({PLANTED!r})
                save({str(tmp_path / "out/a")!r})
        """)
        assert (tmp_path / "out/a").exists() is not write


def test_other_ways_by_which_a_tool_runs_a_file(place):
    """`runpy`, a module that is loaded anew."""
    policy = Policy(write=[place / "root"])
    path = str(place / "root/planted.py")

    @policy.tool
    def run(target):
        import runpy

        runpy.run_path(path)["act"](target)

    @policy.tool
    def reload(target):
        module = types.ModuleType("planted")
        module.__spec__ = importlib.util.spec_from_file_location("planted", path)
        module.__spec__.loader.exec_module(module)
        module.act(target)

    for number, tool in enumerate((run, reload)):
        with policy.guard(monitor_calls=False)():
            exec("with open(path, 'w') as file: file.write(text)", {"path": path, "text": PLANTED})
            with pytest.raises(AuditDenied):
                tool(str(place / f"out/{number}"))


def test_native_code_that_a_tool_imports(tmp_path):
    """Guarded code may not import what it wrote, so a tool does not do it either."""
    root = tmp_path / "root"
    root.mkdir()
    programs.printed(f"""
        import glob, os, shutil, sys, sysconfig
        from fastaudit_rs import AuditDenied, Policy

        found = glob.glob(sysconfig.get_path("stdlib") + "/lib-dynload/*.so")
        found = {{os.path.basename(path).split(".")[0]: path for path in found}}
        name, path = next(one for one in found.items() if one[0] not in sys.modules)
        policy = Policy(write=[{str(root)!r}])
        sys.path.insert(0, {str(root)!r})

        @policy.tool
        def load():
            return repr(__import__(name))

        with policy.guard(monitor_calls=False)():
            shutil.copy(path, {str(root)!r})
            sys.path_importer_cache.clear()
            try:
                loaded = load()
            except AuditDenied:
                loaded = ""
        assert {str(root)!r} not in loaded, loaded
    """)
