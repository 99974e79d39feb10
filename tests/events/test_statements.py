"""The SQL that opens a database: SQLite's own authorizer is asked of the same texts."""

import contextlib
import sqlite3

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

# <https://www.sqlite.org/c3ref/c_alter_table.html>
SQLITE_ATTACH = 24

TOKENS = [
    "attach", "ATTACH", "AttAch", "database", "as", "AS", "vacuum", "VACUUM", "into", "main",
    "temp", "explain", "query plan", "select", "1", "x", "a", "||", "(", ")", ";", ",", "?", "?1",
    ":a", "'OUT/a'", "'OUT/a", '"OUT/a"', "[OUT/a]", "`OUT/a`", "x'61'", "''", "'it''s'",
    "':memory:'", "--", "-- attach\n", "/*", "*/", "/* vacuum */", "\n", "\t", "\f", " ", "\v",
    "\ufeff", "é", "$a", "begin", "commit", "pragma", "with", "values", "create", "table",
    "trigger", "if", "not", "end",
]  # fmt: skip


GAPS = [" ", "\ufeff", "\n", "\t", "/**/", "/* ; */", "-- '\n", " /*", "\f", "\r\n", "\v", ""]
NAMES = [
    "'OUT/a'", '"OUT/a"', "[OUT/a]", "`OUT/a`", "'OUT/' || 'a'", "('OUT/a')", "?", "?1", ":a",
    "OUT", "x'2f61'", "lower('OUT/a')", "'OUT/it''s'", "'file:OUT/a?mode=rwc'", "+'OUT/a'",
    "NULL || 'a'", "1",
]  # fmt: skip


@st.composite
def statements(draw):
    """Statements that open a database, or nearly."""
    gap = st.sampled_from(GAPS)
    words = draw(
        st.sampled_from(
            [
                ["attach", "NAME", "as", "b"],
                ["ATTACH", "DATABASE", "NAME", "AS", "b"],
                ["attach", "database", "NAME", "as", "database"],
                ["vacuum", "into", "NAME"],
                ["VACUUM", "main", "INTO", "NAME"],
                ["explain", "attach", "NAME", "as", "b"],
            ]
        )
    )
    before = draw(
        st.sampled_from(["", "", ";", "select 1;", "/* attach */", "--x\n", "\ufeff", ";;"])
    )
    name = draw(st.sampled_from(NAMES))
    text = "".join(draw(gap) + (name if word == "NAME" else word) for word in words)
    return before + text + draw(st.sampled_from(["", ";", " ", "; select 1", "--", "/*"]))


@pytest.fixture(scope="module")
def asked():
    """`asked(sql, script)`: what SQLite would open for it."""
    opened = []

    def authorize(action, name, *_):
        if action == SQLITE_ATTACH:
            opened.append(name)
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def ask(sql, script):
        opened.clear()
        database = sqlite3.connect(":memory:")
        database.set_authorizer(authorize)
        try:
            run(database, sql, script)
        finally:
            database.set_authorizer(None)
            database.close()
        return list(opened)

    return ask


def run(database, sql, script):
    try:
        if script:
            database.executescript(sql)
        else:
            database.execute(sql, () if "?" not in sql else ("/missing/a",))
    except (sqlite3.Error, sqlite3.Warning, ValueError, UnicodeError, TypeError):
        pass


def test_sqlite_says_what_it_opens(asked):
    """The tests below can fail: it is asked of both kinds of statement."""
    assert asked("attach '/missing/a' as b", False) == ["/missing/a"]
    assert asked("vacuum into '/missing/a'", False) == ["/missing/a"]
    assert asked("select 1; attach '/missing/a' as b", True) == ["/missing/a"]
    assert asked("select 'attach'", False) == []


@pytest.mark.nightly
def test_whatever_sqlite_opens_is_seen(asked, mk_audit, places):
    events = []

    def before_deny(event, args, *_):
        events.append(event)
        return False

    guarded = mk_audit([places.ok], before_deny, monitor_calls=False)
    noise = st.builds(str.join, st.sampled_from(["", " "]), st.lists(st.sampled_from(TOKENS)))
    seen = {"opened": 0, "only seen": 0}

    @settings(
        max_examples=4000,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(sql=statements() | statements() | noise, script=st.booleans())
    @example(sql="/* attach", script=False)
    def check(sql, script):
        sql = sql.replace("OUT", places.out)
        opened = asked(sql, script)
        events.clear()
        database = sqlite3.connect(":memory:")
        try:
            with guarded():
                with contextlib.suppress(PermissionError):
                    run(database, sql, script)
        finally:
            database.close()
        # A database in memory passes without a question, and `explain` opens nothing.
        files = [name for name in opened if name not in ("", ":memory:")]
        if files and "explain" not in sql:
            seen["opened"] += 1
            assert "sqlite3.attach" in events, sql
        elif events:
            seen["only seen"] += 1

    check()
    assert seen["opened"] > 300
