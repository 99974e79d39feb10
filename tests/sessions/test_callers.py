"""The caller of a step in this process: its context variables, and its event loop."""

import asyncio
import contextvars
import json
import threading

import pytest

from fastaudit_rs import Policy

#: A variable of the host; each test has a context of its own.
REQUEST = contextvars.ContextVar("request", default="none")

#: Seconds after which a thread hangs.
LONG = 60


def within(seconds, main):
    """Run a coroutine in an event loop of another thread, which must end in this time."""
    found = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(main())), daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive()
    return found[0]


IN_THREAD = """
import threading
found = []
thread = threading.Thread(target=lambda: found.append(plain()))
thread.start()
thread.join()
found[0]
"""


@pytest.mark.parametrize("code", ["plain()", "await awaited()", IN_THREAD])
def test_a_function_sees_the_variables_of_the_caller(code):
    async def awaited():
        return plain()

    def plain():
        return REQUEST.get()

    REQUEST.set("made")
    tools = {"plain": plain, "awaited": awaited}
    with Policy(threads="inherit").session(tools=tools) as session:
        for name in ("one", "two"):
            REQUEST.set(name)
            assert session.run(code).value == name

        async def main(name):
            REQUEST.set(name)
            return (await session.arun(code)).value

        assert [asyncio.run(main(name)) for name in ("three", "four")] == ["three", "four"]


def test_callbacks_see_them_too(tmp_path):
    seen = []

    def on_ask(denied):
        seen.append(("on_ask", REQUEST.get()))
        return "deny"

    def on_denied(denied):
        seen.append(("on_denied", REQUEST.get()))

    REQUEST.set("one")
    with Policy().session(on_ask=on_ask, on_denied=on_denied) as session:
        session.run(f"open({str(tmp_path / 'a')!r}, 'w')")
    assert seen == [("on_ask", "one"), ("on_denied", "one")]


def test_a_step_sees_none_of_them_and_changes_none():
    def change():
        REQUEST.set("changed")

    REQUEST.set("the host's")
    with Policy().session(tools={"change": change}) as session:
        names = "[name.name for name in contextvars.copy_context()]"
        told = session.run(f"import contextvars\nchange()\n{names}")
        assert "request" not in told.value
    assert REQUEST.get() == "the host's"


def test_code_of_the_step_stays_guarded_in_a_function(tmp_path, monkeypatch):
    """A function that the step has put in a module, and that a tool of the host calls."""
    monkeypatch.setattr(json, "dumps", json.dumps)

    def save(value):
        return json.dumps(value)

    code = f"""
import json
def steal(value):
    open({str(tmp_path / "stolen")!r}, "w")
json.dumps = steal
save(1)
"""
    with Policy().session(tools={"save": save}) as session:
        ran = session.run(code)
    assert ran.error.kind == "AuditDenied" or ran.violations
    assert not (tmp_path / "stolen").exists()


def test_a_loop_that_waits_for_a_step_is_asked_nothing(tmp_path):
    """`on_ask` would run in the loop whose thread runs the step."""

    async def on_ask(denied):
        return "once"

    async def main():
        with Policy().session(on_ask=on_ask) as session:
            code = f"open({str(tmp_path / 'a')!r}, 'w')"
            held_up = session.run(code)
            return held_up, await asyncio.to_thread(session.run, code), await session.arun(code)

    held_up, *others = within(LONG, main)
    assert "keeps from running" in held_up.violations[0].answer
    assert [ran.error for ran in others] == [None, None]


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("code", ["while True: pass", "open('/srv/a', 'w')"])
def test_a_session_ends_on_the_loop_that_awaits_its_step(code, end):
    begun = None

    async def on_ask(denied):
        begun.set()
        await asyncio.sleep(LONG)

    async def begin():
        begun.set()

    async def main():
        nonlocal begun
        begun = asyncio.Event()
        session = Policy().session(on_ask=on_ask, tools={"begin": begin})
        step = asyncio.create_task(session.arun(f"await begin()\n{code}"))
        await begun.wait()
        if "open" in code:
            begun.clear()
            await begun.wait()
        getattr(session, end)()
        ran = await step
        session.close()
        return ran.killed_by

    assert within(LONG, main) == "interrupt"
