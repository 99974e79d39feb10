"""Ordinary code inside an approved root runs; each snippet is one that has been refused before.

The current directory lies outside the root, as do the files that a snippet only reads.
"""

import textwrap

import pytest

# `ok` is the root, `out` a directory outside it.
REFUSED_BY_THE_ORIGINAL = {
    "stdout by its number": "open(1, 'w', closefd=False).close()",
    "/dev/stderr": "open('/dev/stderr', 'a').write('')",
    "chmod of a descriptor": "import os; f = open(ok + '/x', 'w'); os.chmod(f.fileno(), 0o600)",
    "fchown": "import os; f = open(ok + '/x', 'w'); os.fchown(f.fileno(), -1, -1)",
    "NamedTemporaryFile(dir=)": "import tempfile; tempfile.NamedTemporaryFile(dir=ok).write(b'x')",
    "unpack_archive": """
        import os, shutil
        shutil.unpack_archive(out + '/archive.zip', ok + '/un')
        assert os.listdir(ok + '/un') == ['member']
    """,
    "sqlite read by URI": """
        import sqlite3
        sqlite3.connect(f'file:{out}/r.db?mode=ro', uri=True).execute('select * from t')
    """,
    "dataclass(slots=True)": """
        import dataclasses
        @dataclasses.dataclass(slots=True)
        class A:
            x: int = 1
        A()
    """,
    "__defaults__": """
        def f(a): return a
        f.__defaults__ = (1,)
        assert f() == 1
    """,
    "__class__": """
        class A: pass
        class B: pass
        class C(A): pass
        a = A()
        a.__class__ = B
        C.__bases__ = (B,)
    """,
    "__name__ of a class": """
        class A: pass
        A.__name__ = 'X'
    """,
    "functools.wraps on a class": """
        import functools
        class A: pass
        @functools.wraps(A, updated=())
        class B: pass
        assert B.__qualname__ == 'A'
    """,
    "setxattr": """
        import os
        f = open(ok + '/x', 'w')
        try: os.setxattr(f.fileno(), 'user.a', b'1')
        except PermissionError: raise
        except OSError: pass  # no extended attributes here
    """,
    "py_compile": """
        import py_compile
        open(ok + '/m.py', 'w').close()
        py_compile.compile(ok + '/m.py', doraise=True)
    """,
}

ON_SOME_VERSIONS = {
    # The versions on which the original refuses it, and the code.
    "namedtuple": (
        {"since": (3, 13)},
        """
        import collections, typing
        collections.namedtuple('P', 'x y')(1, 2)
        class N(typing.NamedTuple):
            a: int
            b: str = 'x'
        N(1)
        """,
    ),
    "venv": (
        # 3.15 makes no relative link in it.
        {"until": (3, 15)},
        """
        import venv
        venv.create(ok + '/ve', with_pip=False, symlinks=True)
        """,
    ),
}


@pytest.fixture
def run(guard, places):
    """Run a snippet under a guard, after making what it reads."""
    import ctypes  # noqa: F401 - loaded before, as the first import loads a library
    import sqlite3
    import zipfile

    with zipfile.ZipFile(places.out + "/archive.zip", "w") as archive:
        archive.writestr("member", "x")
    database = sqlite3.connect(places.out + "/r.db")
    database.execute("create table t (a)")
    database.close()

    def run_snippet(code):
        compiled = compile(textwrap.dedent(code), "<snippet>", "exec")
        with guard():
            exec(compiled, {"__name__": "snippet", "ok": places.ok, "out": places.out})

    return run_snippet


@pytest.mark.original_fails()
@pytest.mark.parametrize("name", REFUSED_BY_THE_ORIGINAL)
def test_runs_though_the_original_refuses_it(run, name):
    run(REFUSED_BY_THE_ORIGINAL[name])


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(code, marks=pytest.mark.original_fails(**versions), id=name)
        for name, (versions, code) in ON_SOME_VERSIONS.items()
    ],
)
def test_runs_though_the_original_refuses_it_on_some_versions(run, code):
    run(code)
