"""Ordinary code inside an approved root runs; each snippet is one that has been refused before.

The current directory lies outside the root, as do the files that a snippet only reads.
"""

import textwrap

import pytest

# `ok` is the root, `out` a directory outside it.
REFUSED_BY_THE_ORIGINAL = {
    "open of a descriptor": """
        import os
        fd = os.open(ok + '/f', os.O_RDWR | os.O_CREAT)
        with open(fd, 'w') as f: f.write('x')
    """,
    "pipe": """
        import os
        r, w = os.pipe()
        with open(w, 'w') as f: f.write('x')
        os.close(r)
    """,
    "fdopen": """
        import os
        r, w = os.pipe()
        os.fdopen(w, 'wb').close()
        os.close(r)
    """,
    "stdout by its number": "open(1, 'w', closefd=False).close()",
    "/dev/null": "open('/dev/null', 'w').write('x')",
    "/dev/stderr": "open('/dev/stderr', 'a').write('')",
    "fchmod": "import os; f = open(ok + '/x', 'w'); os.fchmod(f.fileno(), 0o600)",
    "chmod of a descriptor": "import os; f = open(ok + '/x', 'w'); os.chmod(f.fileno(), 0o600)",
    "fchown": "import os; f = open(ok + '/x', 'w'); os.fchown(f.fileno(), -1, -1)",
    "TemporaryFile": "import tempfile; tempfile.TemporaryFile().write(b'x')",
    "NamedTemporaryFile": "import tempfile; tempfile.NamedTemporaryFile().write(b'x')",
    "NamedTemporaryFile(dir=)": "import tempfile; tempfile.NamedTemporaryFile(dir=ok).write(b'x')",
    "SpooledTemporaryFile": "import tempfile; tempfile.SpooledTemporaryFile(2).write(b'xxxxx')",
    "rmtree": """
        import os, shutil
        os.makedirs(ok + '/a/b')
        shutil.rmtree(ok + '/a')
        assert os.listdir(ok) == []
    """,
    "rmtree(ignore_errors=True)": """
        import os, shutil
        os.makedirs(ok + '/a/b')
        shutil.rmtree(ok + '/a', ignore_errors=True)
        assert os.listdir(ok) == []
    """,
    "unpack_archive": """
        import os, shutil
        shutil.unpack_archive(out + '/archive.zip', ok + '/un')
        assert os.listdir(ok + '/un') == ['member']
    """,
    "sqlite in memory": "import sqlite3; sqlite3.connect(':memory:').execute('select 1')",
    "sqlite in a temporary file": "import sqlite3; sqlite3.connect('').execute('select 1')",
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
    "fileinput in place": """
        import fileinput
        open(ok + '/x', 'w').write('a')
        for line in fileinput.input(ok + '/x', inplace=True): print(line.upper(), end='')
        assert open(ok + '/x').read() == 'A'
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
    "shelve": (
        {"since": (3, 13)},
        """
        import shelve
        with shelve.open(ok + '/sh') as s: s['a'] = 1
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
