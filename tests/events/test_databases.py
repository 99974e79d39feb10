"""`sqlite3.connect`, and what is built on it: the database is judged by what is opened."""

import contextlib
import importlib
import inspect
import os
import shelve
import sqlite3
import sys

import programs
import pytest


def create(name, **options):
    """Make a table in the database."""
    database = sqlite3.connect(name, **options)
    try:
        database.execute("create table if not exists t (a)")
        database.commit()
    finally:
        database.close()


class TestStatements:
    """Statements that open databases by themselves, on a connection that was open before too."""

    @pytest.fixture(params=["before", "under"])
    def connect(self, request, guard):
        """`connect()`: a connection, and the guard it is used under."""
        before = sqlite3.connect(":memory:")

        def get():
            return before if request.param == "before" else sqlite3.connect(":memory:")

        yield get
        before.close()

    @pytest.mark.original_fails()
    @pytest.mark.parametrize(
        "statement",
        [
            "attach 'OUT/a.db' as a",
            "  /* */ ATTACH\nDATABASE 'OUT/a.db' AS a",
            'attach "OUT/a.db" as a',
            "attach 'file:OUT/a.db?mode=rwc' as a",
            "attach 'OUT/' || 'a.db' as a",
            "attach ('OUT/a.db') as a",
            "vacuum into 'OUT/a.db'",
            "vacuum main into 'OUT/a.db'",
            # For all connections of the process.
            "pragma temp_store_directory = 'OUT'",
            "PRAGMA main.[temp_store_directory]('OUT')",
        ],
    )
    def test_outside(self, guard, places, connect, statement):
        statement = statement.replace("OUT", places.out)
        with guard():
            database = connect()
            for run in (
                database.execute,
                database.executescript,
                database.cursor().execute,
                database.cursor().executescript,
                lambda sql: sqlite3.Connection.execute(database, sql),
                lambda sql: database.executescript("select 1; " + sql),
                lambda sql: list(map(database.execute, [sql])),
            ):
                with pytest.raises(PermissionError, match=r"^sqlite3\.attach "):
                    run(statement)
        assert os.listdir(places.out) == []

    def test_temporary_files_elsewhere(self, guard, places, connect):
        """SQLite obeys as it reads the statement."""
        statement = f"pragma temp_store_directory = '{places.out}'"
        with guard():
            database = connect()
            for run in (
                database,
                lambda sql: database.execute("explain " + sql),
                lambda sql: database.executemany(sql, []),
                lambda sql: database.cursor().executemany(sql, []),
            ):
                with pytest.raises(PermissionError, match=r"^sqlite3\.attach "):
                    run(statement)
            assert database.execute("pragma temp_store_directory").fetchall() == []
            assert database("select 1") is not None
            database.execute(f"pragma temp_store_directory = '{places.ok}'")
            database.execute("pragma temp_store_directory = ''")

    @pytest.mark.original_fails()
    def test_by_parameters(self, guard, places, connect):
        class Text(str):
            __slots__ = ()

        outside = places.out + "/a.db"
        with guard():
            database = connect()
            for statement, parameters in (
                ("attach ? as a", (outside,)),
                ("attach ? as a", [outside]),
                ("attach ?1 as a", (outside,)),
                ("attach :a as a", {"a": outside}),
                ("attach ? as a", (Text(outside),)),
                ("vacuum into ?", (outside,)),
            ):
                with pytest.raises(PermissionError, match=r"^sqlite3\.attach "):
                    database.execute(statement, parameters)
            database.execute("attach ? as a", (places.ok + "/a.db",))
        assert os.listdir(places.out) == []

    def test_errors_are_those_of_sqlite(self, guard, connect):
        with guard():
            database = connect()
            with pytest.raises(TypeError):
                database.execute()
            with pytest.raises(TypeError):
                database.execute(b"attach")
            with pytest.raises((TypeError, ValueError)):
                database.executescript(1)
            with pytest.raises(sqlite3.OperationalError):
                database.execute("nonsense")

    def test_a_module_that_is_made_anew(self, places):
        program = f"""
import importlib, sys
from fastaudit_rs import mk_audit
audit_perms = mk_audit([{places.ok!r}], monitor_calls=False)
for _ in range(2):
    import sqlite3
    with audit_perms():
        try:
            sqlite3.connect(":memory:").execute("attach '{places.out}/a' as a")
        except PermissionError:
            print("denied")
    for name in [name for name in sys.modules if "sqlite3" in name]:
        del sys.modules[name]
"""
        assert programs.printed(program) == "denied\n" * 2
        assert os.listdir(places.out) == []


class TestWriteAheadLog:
    """Reading a database that keeps a log makes files beside it."""

    @pytest.fixture
    def logged(self, places):
        """`logged(closed=False)`: the path of such a database, outside the roots."""
        opened = []

        def make(closed=True):
            path = places.out + "/a.db"
            database = sqlite3.connect(path)
            database.execute("pragma journal_mode = wal")
            database.execute("create table t (a)")
            database.commit()
            if closed:
                database.close()
            else:
                opened.append(database)
            return path

        yield make
        for database in opened:
            database.close()

    @pytest.mark.parametrize(
        "query",
        [
            "mode=ro",
            "mode=ro&cache=private",
            "immutable=0&mode=ro",
            "immutable=0&immutable=1&mode=ro",
            "immutable&mode=ro",
            "mode=ro&nolock=1",
            "mode=rw&immutable=1",
            "mode=ro&vfs=unix-excl",
        ],
    )
    def test_outside(self, guard, places, logged, query):
        logged()
        with guard(), pytest.raises(PermissionError, match="immutable=1") as denied:
            sqlite3.connect(f"file:{places.out}/a.db?{query}", uri=True)
        assert os.listdir(places.out) == ["a.db"]
        assert ("mode=rw" in query) or "immutable=1" in denied.value.hint

    def test_one_that_is_in_use(self, guard, places, logged):
        """The index of another's log is not changed."""
        uri = f"file:{logged(closed=False)}?mode=ro"
        before = {
            name: os.stat(f"{places.out}/{name}").st_mtime_ns for name in os.listdir(places.out)
        }
        with guard(), pytest.raises(PermissionError):
            sqlite3.connect(uri, uri=True)
        assert before == {name: os.stat(f"{places.out}/{name}").st_mtime_ns for name in before}

    @pytest.mark.parametrize("suffix", ["-wal", "-shm"])
    def test_one_whose_log_is_left(self, guard, places, suffix):
        create(places.out + "/a.db")
        open(f"{places.out}/a.db{suffix}", "w").close()
        with guard(), pytest.raises(PermissionError):
            sqlite3.connect(f"file:{places.out}/a.db?mode=ro", uri=True)

    def test_a_lock_beside_it(self, guard, places):
        """`unix-dotfile` makes a directory for a lock."""
        create(places.out + "/a.db")
        with guard(), pytest.raises(PermissionError):
            sqlite3.connect(f"file:{places.out}/a.db?mode=ro&vfs=unix-dotfile", uri=True)

    @pytest.mark.original_fails()
    def test_locks_of_the_host_are_kept(self, guard, places):
        """Closing a descriptor of a file gives up the process's locks on it."""
        path = places.out + "/a.db"
        create(path)
        host = sqlite3.connect(path, isolation_level=None)
        host.execute("begin exclusive")
        with guard():
            sqlite3.connect(f"file:{path}?mode=ro", uri=True).close()
        other = (
            "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('drop table t')"
        )
        assert "database is locked" in programs.ran(other, path).stderr
        host.execute("rollback")
        host.close()

    @pytest.mark.skipif(sys.version_info < (3, 13), reason="shelves are not kept by SQLite")
    def test_shelves(self, guard, places):
        with shelve.open(places.out + "/shelf") as shelf:
            shelf["a"] = 1
        before = os.listdir(places.out)
        # Later releases read them with `immutable=1`, which makes no file.
        reads_alone = "immutable=1" in inspect.getsource(importlib.import_module("dbm.sqlite3"))
        outcome = contextlib.nullcontext() if reads_alone else pytest.raises(PermissionError)
        with guard(), outcome:
            with shelve.open(places.out + "/shelf", "r") as shelf:
                assert shelf["a"] == 1
        assert os.listdir(places.out) == before
