"""Importing a native module runs its code: it is loaded from where the host imports modules."""

import glob
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig

import programs
import pytest

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
# Some that hold no state. The Pythons of Debian have but the last one as a file.
NAMES = ["_bisect", "_heapq", "_csv", "_opcode", "_random", "_statistics", "_uuid"]
SPECS = [importlib.util.find_spec(name) for name in NAMES]
FILES = [spec.origin for spec in SPECS if spec and (spec.origin or "").endswith(SUFFIX)]
pytestmark = pytest.mark.skipif(not FILES, reason="no extension modules to copy")
NAME = os.path.basename(FILES[0]).split(".")[0] if FILES else ""

GUARDS = {
    "mk_audit": "mk_audit([OK], monitor_calls=False)()",
    "policy": "Policy(write=[OK], network=False).guard(monitor_calls=False)()",
    "v02": "v02.mk_audit([OK], monitor_calls=False)()",
    "install": "contextlib.nullcontext(Policy(write=[OK]).install())",
}
# A policy with native code, as the presets are that have it.
NATIVE = "Policy(write=[OK], native=True).guard(monitor_calls=False)()"
WORKSPACE = "Policy.preset('workspace').replace(write=[OK]).guard(monitor_calls=False)()"

PROGRAM = """
import contextlib, importlib, importlib.machinery, importlib.util, os, shutil, sys, tempfile
from fastaudit_rs import AuditDenied, Policy, mk_audit, v02
OK, OUT, SOURCE, FILE, NAME = {ok!r}, {out!r}, {source!r}, {file!r}, {name!r}
sys.modules.pop(NAME, None)

def load(path, name="copy." + NAME):
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    return importlib.util.module_from_spec(spec)

{before}
with {guard}:
    try:
{code}
        print("loaded")
    except AuditDenied as denied:
        print("denied", denied.event)
        print(denied)
"""


@pytest.fixture
def run(places):
    """`run(code, guard, before)`: what came of it, and the text of a denial."""

    def run_it(code, guard=GUARDS["mk_audit"], before="", **options):
        lines = code.strip().splitlines()
        program = PROGRAM.format(
            ok=places.ok,
            out=places.out,
            source=FILES[0],
            file=NAME + SUFFIX,
            name=NAME,
            before=before,
            guard=guard,
            code="\n".join(" " * 8 + line for line in lines),
        )
        command = [options.pop("python", sys.executable), "-c", program]
        ended = programs.run(command, cwd=places.cwd, **options)
        assert ended.returncode == 0, ended.stderr
        first, _, text = ended.stdout.partition("\n")
        return first, text

    return run_it


@pytest.fixture
def package(places):
    """`package(directory)`: a package there with an extension module, which was there before."""

    def make(directory):
        os.makedirs(directory + "/ext", exist_ok=True)
        open(directory + "/ext/__init__.py", "w").close()
        shutil.copy(FILES[0], directory + "/ext")
        return directory

    return make


LOADS = {
    "import": "sys.path.insert(0, OK); importlib.import_module(NAME)",
    "loader": "load(OK + '/' + FILE)",
    "_imp": """
import _imp
spec = importlib.machinery.ModuleSpec("copy." + NAME, None, origin=OK + "/" + FILE)
_imp.create_dynamic(spec)
""",
    "temporary": """
directory = tempfile.mkdtemp()
shutil.copy(SOURCE, directory)
load(os.path.join(directory, FILE))
""",
}
COPY = "shutil.copy(SOURCE, os.path.join(OK, FILE))\n"
IMPORT = "importlib.import_module('ext.' + NAME)"
FROM_OUT = f"sys.path.insert(0, OUT)\n{IMPORT}"


@pytest.mark.parametrize("guard", [*GUARDS.values(), NATIVE, WORKSPACE])
@pytest.mark.parametrize("way", LOADS)
def test_out_of_a_root(run, guard, way):
    """As guarded code may have made it."""
    result, text = run(COPY + LOADS[way], guard)
    assert result == "denied import"
    assert "before the guard is entered" in text


@pytest.mark.parametrize(
    "guard",
    [
        "Policy(write=[OK], import_allow=['*']).guard(monitor_calls=False)()",
        "mk_audit([OK], packages='data', monitor_calls=False)()",
        "v02.mk_audit([OK], allow_imports=['ext', 'copy'], monitor_calls=False)()",
    ],
)
def test_out_of_a_root_where_imports_may_do_more(run, guard):
    copy = "os.mkdir(OK + '/ext'); open(OK + '/ext/__init__.py', 'w').close()\n"
    copy += "shutil.copy(SOURCE, OK + '/ext')\nsys.path.insert(0, OK)\n"
    assert run(copy + IMPORT, guard)[0] == "denied import"


@pytest.mark.parametrize("guard", GUARDS)
def test_from_elsewhere(run, package, places, guard):
    """A place that guarded code finds by itself."""
    package(places.out)
    result, text = run(FROM_OUT, GUARDS[guard])
    assert result == "denied import"
    expected = "native = ['ext']" if guard in ("policy", "install") else "before the guard is"
    assert expected in text


@pytest.mark.parametrize("native", ["True", "['ext']", "['ext.' + NAME]"])
def test_from_elsewhere_by_its_name(run, package, places, native):
    package(places.out)
    guard = f"Policy(write=[OK], native={native}).guard(monitor_calls=False)()"
    assert run(FROM_OUT, guard)[0] == "loaded"


#: Where a package was before, if anywhere, the code of the host, and that of the guest.
PASSES = {
    "the standard library": ("", "", "importlib.import_module(NAME)"),
    "a directory of the path": ("out", "sys.path.append(OUT)", IMPORT),
    "the current directory": ("cwd", "", IMPORT),
    "what was imported before": ("ok", f"sys.path.append(OK)\n{IMPORT}", IMPORT),
}


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize(("place", "before", "code"), PASSES.values(), ids=PASSES)
def test_passes(run, package, places, guard, place, before, code):
    if place:
        package(getattr(places, place))
    assert run(code, GUARDS[guard], before=before)[0] == "loaded"


@pytest.mark.parametrize("guard", GUARDS)
def test_a_directory_of_the_variable_passes(run, package, places, guard):
    environment = {**os.environ, "PYTHONPATH": package(places.out)}
    assert run(IMPORT, GUARDS[guard], env=environment)[0] == "loaded"


@pytest.fixture
def environment(places):
    """A virtual environment in a root, with this package: where packages are, and its Python."""
    import fastaudit_rs

    directory = places.ok + "/.venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    [site] = glob.glob(directory + "/lib/python3*/site-packages")
    os.symlink(os.path.dirname(fastaudit_rs.__file__), site + "/fastaudit_rs")
    return site, directory + "/bin/python"


@pytest.mark.parametrize("guard", GUARDS)
class TestEnvironmentInARoot:
    """The case of most notebooks: the root is the current directory."""

    def test_its_packages(self, run, package, environment, guard):
        site, python = environment
        package(site)
        assert run(IMPORT, GUARDS[guard], python=python)[0] == "loaded"

    @pytest.mark.parametrize("by", ["pth", "finder"])
    def test_an_editable_install(self, run, package, places, environment, guard, by):
        site, python = environment
        source = package(places.ok + "/a b/src")
        before = ""
        if by == "pth":
            with open(site + "/ext.pth", "w") as file:
                file.write(source + "\n")
        else:
            os.mkdir(site + "/ext-1.0.dist-info")
            with open(site + "/ext-1.0.dist-info/direct_url.json", "w") as file:
                url = "file://" + os.path.dirname(source).replace(" ", "%20")
                file.write(f'{{"dir_info": {{"editable": true}}, "url": "{url}"}}')
            before = f"""
class Finder:
    def find_spec(name, path=None, target=None):
        if name == "ext":
            file = {source + "/ext/__init__.py"!r}
            places = [os.path.dirname(file)]
            return importlib.util.spec_from_file_location(
                name, file, submodule_search_locations=places)
sys.meta_path.append(Finder)
"""
        assert run(IMPORT, GUARDS[guard], before, python=python)[0] == "loaded"
        # Files that guarded code puts there are its own.
        copy = (
            f"os.remove({source!r} + '/ext/' + FILE)\nshutil.copy(SOURCE, {source!r} + '/ext/')\n"
        )
        assert run(copy + IMPORT, GUARDS[guard], before, python=python)[0] == "denied import"


@pytest.mark.slow
def test_packages_that_are_links(run, package, places, environment):
    site, python = environment
    package(places.out + "/store")
    os.symlink(places.out + "/store/ext", site + "/ext")
    for guard in GUARDS.values():
        assert run(IMPORT, guard, python=python)[0] == "loaded"


def test_a_link_into_a_root_is_of_the_root(run, package, places):
    package(places.ok)
    os.symlink(places.ok + "/ext", places.out + "/ext")
    assert run(IMPORT, before="sys.path.append(OUT)")[0] == "denied import"


def test_a_root_of_another_guard(run, places):
    """A path that guarded code left is known as the next guard is made, what it wrote is newer."""
    before = """
with mk_audit([OUT], monitor_calls=False)():
    shutil.copy(SOURCE, OUT)
    sys.path.append(OUT)
"""
    code = "load(OUT + '/' + FILE)"
    assert run(code, before=before)[0] == "denied import"


def test_what_is_written_in_the_first_moment_of_a_guard(run):
    """Its time is that of the system's last tick, which may be before the guard."""
    for _ in range(5):
        code = COPY + "sys.path.insert(0, OK)\nimportlib.import_module(NAME)"
        assert run(code, before="sys.path.insert(0, OK)")[0] == "denied import"


def test_a_host_can_allow_it(run):
    guard = "mk_audit([OK], before_deny=lambda event, *_: event == 'import')()"
    assert run(COPY + LOADS["loader"], guard)[0] == "loaded"
