"""A host in C that embeds Python, ends it (Py_Finalize) and begins anew."""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

import cython_modules
import programs
import pytest

HOST = r"""
#include <Python.h>

int main(int argc, char **argv) {
    for (int round = 1; round < argc; round++) {
        Py_Initialize();
        int failed = PyRun_SimpleString(argv[round]);
        printf("%d: %s\n", round, failed ? "failed" : "passed");
        fflush(stdout);
        Py_FinalizeEx();
    }
    return 0;
}
"""

LIBRARY = Path(str(sysconfig.get_config_var("LIBDIR")), str(sysconfig.get_config_var("LDLIBRARY")))
COMPILER = cython_modules.compiler()

pytestmark = pytest.mark.skipif(
    shutil.which(COMPILER[0]) is None or ".so" not in LIBRARY.name or not LIBRARY.exists(),
    reason="needs a C compiler and a shared library of Python",
)

IMPORT = """
import sys
sys.path[:0] = {path!r}
from fastaudit_rs import Policy, mk_audit
policy = Policy(write=[{ok!r}])
"""

#: Each guards the text `WRITE`, and a denial makes the round fail.
WAYS = {
    "policy": "with policy.guard()():\n    WRITE",
    "mk_audit": "with mk_audit([{ok!r}])():\n    WRITE",
    "session": "with policy.session() as session:\n    assert session.run({write!r}).error is None",
    "install": "policy.install()\nWRITE",
}


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """The program: each argument is code for one life of Python."""
    place = tmp_path_factory.mktemp("host")
    source = place / "host.c"
    source.write_text(HOST)
    include = sysconfig.get_path("include")
    where = [f"-I{include}", f"-L{LIBRARY.parent}", f"-Wl,-rpath,{LIBRARY.parent}"]
    library = f"-lpython{sysconfig.get_config_var('LDVERSION')}"
    command = [*COMPILER, source, *where, library, "-o", place / "host"]
    made = programs.run(command)
    if made.returncode:
        pytest.skip(f"no program with Python can be made here: {made.stderr[-200:]}")
    return place / "host"


@pytest.mark.parametrize("way", WAYS)
def test_no_guard_of_a_later_python_lets_all_pass(host, places, way):
    import fastaudit_rs

    path = [str(Path(fastaudit_rs.__file__).parents[1]), *sys.path]
    file = f"{places.out}/new"
    write = f"open({file!r}, 'w').close()"
    guarded = WAYS[way].format(ok=places.ok, write=write).replace("WRITE", write)
    code = IMPORT.format(path=path, ok=places.ok) + guarded
    ended = programs.run(
        [host, code, code, code], env={"PYTHONHOME": sys.base_prefix, "PATH": os.environ["PATH"]}
    )
    assert ended.stdout.split("\n")[:3] == ["1: failed", "2: failed", "3: failed"], ended.stderr
    assert not os.path.exists(file)
    assert ended.stderr.count("ImportError: fastaudit_rs works in the first Python") == 2
    assert ended.returncode == 0
