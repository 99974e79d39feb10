"""`sqlite3.connect`, and what is built on it: the database is judged by what is opened."""

import contextlib
import importlib
import inspect
import os
import shelve
import sqlite3
import sys
from pathlib import Path

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


def denied(name, **options):
    try:
        create(name, **options)
    except PermissionError as error:
        assert str(error).startswith("sqlite3.connect ")
        return True
    return False


def test_files(guard, places):
    with guard():
        create(places.ok + "/a.db")
        create(os.fsencode(places.ok + "/b.db"))
        create(Path(places.ok, "c.db"))
        for name in (places.out + "/a.db", "a.db", Path(places.out, "b.db")):
            assert denied(name)
    assert sorted(os.listdir(places.ok)) == ["a.db", "b.db", "c.db"]
    assert os.listdir(places.out) == os.listdir(places.cwd) == []


@pytest.mark.original_fails()
@pytest.mark.parametrize(
    "uri", ["file::memory:", "file:shared?mode=memory&cache=shared", "file:", "file:?cache=private"]
)
def test_uris_for_memory(guard, places, uri):
    with guard():
        create(uri, uri=True)
    assert os.listdir(places.cwd) == []


@pytest.mark.original_fails()
@pytest.mark.parametrize(
    "form", ["file:{}", "file://{}", "file://localhost{}", "file:{}?mode=rwc", "file:{}#fragment"]
)
def test_uris_name_a_path(guard, places, form):
    with guard():
        create(form.format(places.ok + "/a.db"), uri=True)
        assert denied(form.format(places.out + "/a.db"), uri=True)
    assert os.listdir(places.ok) == ["a.db"]
    assert os.listdir(places.out) == []


@pytest.mark.original_fails()
def test_uris_that_climb_out_in_disguise(guard, places, monkeypatch):
    monkeypatch.chdir(places.ok)
    with guard([".", places.ok]):
        for uri in (
            f"file:{places.ok}/%2e%2e/out/a.db",
            "file:..%2fout%2fa.db",
            f"file:{places.out}/a.db?mode=ro&mode=rwc",
            f"file:{places.out}/a.db?mode=memory&%6dode=rwc",
        ):
            assert denied(uri, uri=True), uri
    assert os.listdir(places.out) == []


@pytest.mark.original_fails()
def test_a_uri_without_uri_is_a_name(guard, places, monkeypatch):
    """Where a directory of that odd name exists, the name is judged as one."""
    os.makedirs(f"file:{places.ok}")
    with guard():
        assert denied(f"file:{places.ok}/a.db")
    monkeypatch.chdir(places.ok)
    os.makedirs(f"file:{places.out}")
    with guard():
        assert denied(f"file:{places.out}/a.db", uri=True)


def test_extensions(guard, places):
    database = sqlite3.connect(":memory:")
    if not hasattr(database, "enable_load_extension"):
        pytest.skip("sqlite3 was built without loading extensions")
    database.enable_load_extension(True)
    with guard():
        with pytest.raises((PermissionError, sqlite3.OperationalError)):
            database.load_extension(places.out + "/extension")
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

    def test_inside(self, guard, places, connect):
        with guard():
            database = connect()
            database.execute(f"attach '{places.ok}/a.db' as a")
            database.execute("create table a.t (attach, vacuum)")
            database.execute(
                "insert into a.t values ('attach ''/a'' as b', ';vacuum into ''/a'';')"
            )
            database.commit()
            database.execute("attach ':memory:' as b")
            database.executescript(f"vacuum; vacuum into '{places.ok}/b.db'")
        assert sorted(os.listdir(places.ok)) == ["a.db", "b.db"]

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

    @pytest.mark.original_fails()
    def test_one_that_nobody_changes(self, guard, places, logged):
        logged()
        with guard():
            uri = f"file:{places.out}/a.db?mode=ro&immutable=1"
            database = sqlite3.connect(uri, uri=True)
            assert database.execute("select * from t").fetchall() == []
            database.execute(f"attach '{uri}' as other")
            database.close()
        assert os.listdir(places.out) == ["a.db"]

    @pytest.mark.original_fails()
    def test_attached(self, guard, places, logged):
        uri = f"file:{logged()}?mode=ro"
        with guard():
            database = sqlite3.connect("file::memory:", uri=True)
            for run in (
                lambda: database.execute(f"attach '{uri}' as a"),
                lambda: database.execute("attach ? as a", (uri,)),
                lambda: database.executescript(f"select 1; attach '{uri}' as a"),
            ):
                with pytest.raises(PermissionError, match=r"^sqlite3\.attach "):
                    run()
            database.close()
        assert os.listdir(places.out) == ["a.db"]

    def test_by_a_link(self, guard, places, logged):
        os.symlink(logged(), places.ok + "/link.db")
        with guard(), pytest.raises(PermissionError):
            sqlite3.connect(f"file:{places.ok}/link.db?mode=ro", uri=True)

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
