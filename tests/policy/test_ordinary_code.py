"""Ordinary code inside an approved root runs; each snippet is one that has been refused before.

The current directory lies outside the root, as do the files that a snippet only reads.
"""

import sys
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
    "fchdir": "import os; fd = os.open(ok, os.O_RDONLY); os.fchdir(fd); os.close(fd)",
    "mkdir at a dir_fd": """
        import os
        fd = os.open(ok, os.O_RDONLY)
        os.mkdir('d', dir_fd=fd)
        assert os.path.isdir(ok + '/d')
    """,
    "os.open at a dir_fd": """
        import os
        fd = os.open(ok, os.O_RDONLY)
        os.close(os.open('d', os.O_WRONLY | os.O_CREAT, dir_fd=fd))
        assert os.path.isfile(ok + '/d')
    """,
    "relative symlink": """
        import os
        open(ok + '/t', 'w').close()
        os.symlink('t', ok + '/l')
        assert os.path.samefile(ok + '/t', ok + '/l')
    """,
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
    "rmtree of files": """
        import os, shutil
        os.mkdir(ok + '/a')
        open(ok + '/a/f', 'w').close()
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
    "sqlite by URI": """
        import sqlite3
        sqlite3.connect(f'file:{ok}/r.db', uri=True).execute('create table t (a)')
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
        a = A()
        a.__class__ = B
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
    "chdir and back": """
        import os
        c = os.getcwd()
        os.chdir(ok)
        os.chdir(c)
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

ALWAYS_RAN = {
    "write, rename, delete": """
        from pathlib import Path
        p = Path(ok, 'a'); p.write_text('x'); p.rename(ok + '/b'); Path(ok, 'b').unlink()
        Path(ok, 'd/e').mkdir(parents=True, exist_ok=True); Path(ok).mkdir(exist_ok=True)
        (Path(ok) / 'd' / 'e').rmdir()
    """,
    "copies": """
        import shutil
        shutil.copytree(out, ok + '/tree'); shutil.copy2(out + '/r.db', ok + '/r')
        shutil.move(ok + '/r', ok + '/s'); shutil.make_archive(ok + '/arc', 'zip', ok + '/tree')
    """,
    "archives": """
        import tarfile, zipfile
        with tarfile.open(ok + '/a.tar.gz', 'w:gz') as t: t.add(out + '/r.db', 'r.db')
        filtered = {'filter': 'data'} if hasattr(tarfile, 'data_filter') else {}
        tarfile.open(ok + '/a.tar.gz').extractall(ok + '/t', **filtered)
        with zipfile.ZipFile(ok + '/a.zip', 'w') as z: z.writestr('m', 'x')
        zipfile.ZipFile(ok + '/a.zip').extractall(ok + '/z')
    """,
    "compressed files": """
        import bz2, gzip, lzma
        for module in (bz2, gzip, lzma): module.open(ok + '/' + module.__name__, 'wb').write(b'x')
    """,
    "data formats": """
        import csv, json, pickle
        json.dump([1], open(ok + '/j', 'w')); pickle.dump([1], open(ok + '/p', 'wb'))
        csv.writer(open(ok + '/c', 'w')).writerow([1])
    """,
    "logging": """
        import logging.handlers
        handler = logging.handlers.RotatingFileHandler(ok + '/log', maxBytes=10, backupCount=2)
        log = logging.Logger('l'); log.addHandler(handler)
        for _ in range(5): log.error('x' * 8)
        handler.close()
    """,
    "temporary directory": """
        import tempfile
        with tempfile.TemporaryDirectory() as d: open(d + '/f', 'w').close()
        tempfile.mkstemp(); tempfile.mkdtemp()
    """,
    "classes": """
        import abc, dataclasses, enum, typing
        @dataclasses.dataclass(frozen=True, order=True)
        class D: x: int = 1
        class E(enum.Enum): A = 1
        class P(typing.Protocol): pass
        class T(typing.TypedDict): a: int
        class G(typing.Generic[typing.TypeVar('V')]): pass
        typing.NewType('N', int); abc.ABCMeta('A', (), {}); type('X', (), {})
    """,
    "functools": """
        import functools
        @functools.lru_cache
        def f(x): return x
        @functools.wraps(f)
        def g(*a): return f(*a)
        @functools.singledispatch
        def s(x): pass
        s.register(int, lambda x: x); g(1); functools.partial(f, 1)(); functools.total_ordering
    """,
    "unittest and mock": """
        import unittest, unittest.mock
        class T(unittest.TestCase):
            def test(self):
                with unittest.mock.patch('os.getcwd', return_value='x') as m: m()
        assert unittest.TestSuite([T('test')]).run(unittest.TestResult()).wasSuccessful()
        unittest.mock.MagicMock(spec=int)()
    """,
    "asyncio": """
        import asyncio
        async def main():
            q = asyncio.Queue(); await q.put(1)
            return await asyncio.gather(q.get(), asyncio.sleep(0))
        asyncio.run(main()); asyncio.run(asyncio.sleep(0))
    """,
    "ctypes that is imported": """
        import ctypes
        class S(ctypes.Structure): _fields_ = [('a', ctypes.c_int)]
        ctypes.create_string_buffer(4); S(); ctypes.sizeof(S)
    """,
    "import from a root": """
        import sys, importlib
        open(ok + '/mod.py', 'w').write('x = 1'); sys.path.insert(0, ok)
        try: import mod; importlib.reload(mod)
        finally: sys.path.remove(ok); sys.modules.pop('mod', None)
    """,
    "reading everywhere": """
        import glob, os, tokenize
        os.listdir(out); os.stat(out); list(os.walk(out)); glob.glob(out + '/*')
        open(out + '/r.db', 'rb').close()
    """,
    "sockets": """
        import socket
        s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); s.close()
    """,
    "mmap": """
        import mmap
        f = open(ok + '/m', 'w+b'); f.write(b'x' * 10); f.flush(); mmap.mmap(f.fileno(), 10)[0] = 65
    """,
    "warnings and tracebacks": """
        import traceback, warnings
        with warnings.catch_warnings(record=True): warnings.warn('x')
        try: 1 / 0
        except ZeroDivisionError: traceback.format_exc()
    """,
    "timeit": "import timeit; timeit.timeit('1', number=10)",
}

# Refused by the contract of 0.1, as docs/compatibility.md says. Calls of native libraries, which
# need call monitoring, are in test_calls.py.
BY_DESIGN = {
    "threading.Thread": "import threading; threading.Thread(target=int).start()",
    "threading.Timer": "import threading; threading.Timer(0, int).start()",
    "ThreadPoolExecutor": """
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(2) as e: list(e.map(int, ['1']))
    """,
    "asyncio.to_thread": "import asyncio; asyncio.run(asyncio.to_thread(int))",
    "os.environ": "import os; os.environ['FOO_X'] = '1'",
    "os.environ.setdefault": "import os; os.environ.setdefault('FOO_OMP', '1')",
    "loading a library": "import ctypes; ctypes.CDLL('libc.so.6')",
    "__kwdefaults__": """
        def f(*, a): pass
        f.__kwdefaults__ = {'a': 1}
    """,
    "__code__": """
        def f(): pass
        f.__code__ = (lambda: 1).__code__
    """,
    "symlink to the outside": "import os; os.symlink('/usr/bin/true', ok + '/l')",
    "hard link from the outside": "import os; os.link(out + '/r.db', ok + '/l')",
    "unapproved command": "import subprocess; subprocess.run(['echo', 'x'])",
}
THREADS_RAISE_EVENTS = sys.version_info >= (3, 12)
THREADS = {"threading.Thread", "threading.Timer", "ThreadPoolExecutor", "asyncio.to_thread"}


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


@pytest.mark.parametrize("name", ALWAYS_RAN)
def test_runs(run, name):
    run(ALWAYS_RAN[name])


@pytest.mark.parametrize("name", BY_DESIGN)
def test_denied_by_the_contract(run, name):
    if name in THREADS and not THREADS_RAISE_EVENTS:
        pytest.skip("threads raise no event before 3.12")
    with pytest.raises(PermissionError):
        run(BY_DESIGN[name])
