"""Questions that wait for an answer: the step ends, and is run again once it is there."""

import asyncio
import contextlib
import json
import os
import pathlib
import threading
import time

import pytest

from fastaudit_rs import Approvals, Pending, Policy, Sandbox


@pytest.fixture
def out(out):
    return pathlib.Path(out)


@pytest.fixture(params=["here", "sandbox"])
def opened(request, tmp_path, out):
    """`opened(on_ask, **options)`: a session in either place, which may write nowhere."""
    if request.param == "sandbox":
        pytest.importorskip("sandlock")
    with contextlib.ExitStack() as stack:

        def make(on_ask, **options):
            if request.param == "here":
                made = Policy().session(on_ask=on_ask, **options)
            else:
                approvable = Policy(write=[str(out)])
                sandbox = stack.enter_context(Sandbox(parent=tmp_path, approvable=approvable))
                made = sandbox.session(on_ask=on_ask, **options)
            return stack.enter_context(made)

        make.place = request.param
        yield make


def later(denied):
    return "pending"


def writing(path, before="", after=""):
    return f"{before}\nopen({str(path)!r}, 'w').close()\n{after}"


def test_a_question_that_waits(opened, out):
    session = opened(later)
    session.run("n = 1")
    code = writing(out / "a", "n += 1\nprint(n)", "n += 1\nprint('after')\nn")
    ran = session.run(code)
    assert (ran.success, ran.killed_by, ran.stdout, ran.value) == (False, "pending", "2\n", None)
    assert ran.error.kind == "Pending" and str(out / "a") in ran.error.message
    assert ran.error.line == 3
    pending = ran.pending
    assert (pending.code, pending.until, pending.session) == (
        code,
        None,
        session.pending[0].session,
    )
    assert (pending.denied.effect, pending.denied.resolved) == ("write", str(out / "a"))
    assert "once" in pending.answers and len(pending.id) >= 32
    assert abs(pending.asked - time.time()) < 60
    assert "waits for an answer" in ran.for_model()
    # Nothing is left of the step but its output.
    assert (session.get("n"), os.listdir(out)) == (1, [])
    store = {}
    session.save(store)
    session.load(store)
    ran = session.answer(pending.id, "once")
    assert (ran.error, ran.value, ran.stdout) == (None, 3, "2\nafter\n")
    # It is the first one after that.
    assert ran.restarted == "restored"
    assert (ran.pending, session.pending, os.listdir(out)) == (None, [], ["a"])
    # Once is once.
    assert session.run(code).killed_by == "pending"


def test_a_record_can_be_stored(opened, out):
    session = opened(later)
    ran = session.run(f"open({str(out)!r} + '/' + name, 'w').close()", variables={"name": "a"})
    stored = json.dumps(ran.pending.to_dict())
    again = Pending.from_dict(json.loads(stored))
    assert (again.to_dict(), again.id) == (ran.pending.to_dict(), ran.pending.id)
    other = opened(later)
    other.adopt(again)
    assert other.answer(again.id, "once").error is None
    assert os.listdir(out) == ["a"]


def test_what_is_stored_otherwise(opened, out):
    stored = opened(later).run(writing(out / "a")).pending.to_dict()
    del stored["code"]
    with pytest.raises(KeyError, match='told must have the key "code" of to_dict'):
        Pending.from_dict(stored)
    with pytest.raises(TypeError, match="told must be the dictionary that to_dict.. gave, not str"):
        Pending.from_dict(json.dumps(stored))


@pytest.mark.parametrize("is_async", [False, True])
def test_an_answer_after_a_session_was_loaded(opened, out, is_async):
    """The step that is run again is the next one: its model is told what is lost."""
    session = opened(later)
    waits = session.run(writing(out / "a")).pending
    store = {}
    session.save(store)
    other = opened(later, id=session.id)
    other.load(store)
    other.adopt(waits)
    if is_async:
        ran = asyncio.run(other.aanswer(waits.id, "once"))
    else:
        ran = other.answer(waits.id, "once")
    assert (ran.error, ran.restarted) == (None, "restored")
    assert other.run("1").restarted is None


@pytest.mark.parametrize("given", ("a\nb", b"a\nb", None))
def test_what_a_step_reads_is_read_again(opened, out, given):
    """A step that has read some of its input ends there, and begins anew with all of it."""
    session = opened(later)
    first = "" if given is None else "input()"
    code = f"import sys\nsaid = [{first}]\n{writing(out / 'a')}\n[*said, sys.stdin.read()]"
    pending = session.run(code, stdin=given).pending
    stored = Pending.from_dict(json.loads(json.dumps(pending.to_dict())))
    assert stored.stdin == pending.stdin == (None if given is None else b"a\nb")
    # Another step has its own input meanwhile.
    assert session.run("input()", stdin="c").value == "c"
    ran = session.answer(pending.id, "once")
    assert (ran.error, ran.value) == (None, [""] if given is None else ["a", "b"])
    other = opened(later)
    other.adopt(stored)
    ran = other.answer(stored.id, "once")
    assert (ran.error, ran.value) == (None, [""] if given is None else ["a", "b"])


def test_answers(opened, out):
    asked = []

    def on_ask(denied):
        asked.append(denied.resolved)
        return "pending"

    session = opened(on_ask)
    waits = session.run(writing(out / "a")).pending
    ran = session.answer(waits.id, "deny")
    assert (ran.returncode, ran.error.kind) == (77, "fastaudit_rs.AuditDenied")
    assert (len(asked), os.listdir(out)) == (1, [])
    waits = session.run(writing(out / "a")).pending
    # A pattern stays, as if it had been answered at once.
    assert session.answer(waits.id, "pattern").error is None
    assert session.run(writing(out / "b")).error is None
    assert (len(asked), sorted(os.listdir(out))) == (2, ["a", "b"])


def test_a_step_that_asks_twice(opened, out):
    session = opened(later)
    code = f"{writing(out / 'a')}{writing(out / 'b')}"
    first = session.run(code).pending
    second = session.answer(first.id, "once").pending
    assert second.denied.resolved == str(out / "b")
    assert session.answer(second.id, "once").error is None
    assert sorted(os.listdir(out)) == ["a", "b"]


def test_an_answer_is_for_what_was_asked(opened, out):
    """A step that does something else when it is run again is asked about that."""
    session = opened(later)
    session.run("n = 0")
    pending = session.run(f"open({str(out)!r} + f'/{{n}}', 'w').close()").pending
    session.run("n = 1")
    ran = session.answer(pending.id, "once")
    assert ran.pending.denied.resolved == str(out / "1")
    assert os.listdir(out) == []


def test_answers_that_are_refused(opened, out):
    session = opened(later, pending_seconds=0.05)
    pending = session.run(writing(out / "a")).pending
    assert pending.until == pytest.approx(pending.asked + 0.05)
    for wrong in (pending.id[:-1], "x" * 32, ""):
        with pytest.raises(ValueError, match="no question of this session has the id "):
            session.answer(wrong, "once")
    for wrong, error in ((pending, TypeError), (None, TypeError), (b"x", TypeError)):
        with pytest.raises(error, match="pending must be the id of a question, a str, not"):
            session.answer(wrong, "once")
    with pytest.raises(ValueError, match="answer must be one of 'once', .* not 'yes'"):
        session.answer(pending.id, "yes")
    time.sleep(0.1)
    with pytest.raises(ValueError, match="the question has expired: run the step again"):
        session.answer(pending.id, "once")
    assert session.pending == []
    session = opened(later)
    pending = session.run(writing(out / "a")).pending
    assert session.answer(pending.id, "once").error is None
    for answer in (lambda: session.answer(pending.id, "once"), lambda: session.adopt(pending)):
        with pytest.raises(ValueError, match="the question was answered already"):
            answer()
    other = opened(later)
    with pytest.raises(ValueError, match="no question of this session"):
        other.answer(pending.id, "once")
    with pytest.raises(TypeError, match="pending must be a Pending, not dict"):
        other.adopt(pending.to_dict())
    with pytest.raises(ValueError, match="pending_seconds must be positive"):
        opened(later, pending_seconds=-1)


def test_a_question_waits_on_while_a_step_runs(opened, out):
    begun, ends = threading.Event(), threading.Event()

    def wait():
        begun.set()
        ends.wait(30)

    session = opened(later, tools={"wait": wait})
    pending = session.run(writing(out / "a")).pending
    runs = threading.Thread(target=session.run, args=("wait()",))
    runs.start()
    begun.wait(30)
    with pytest.raises(RuntimeError, match="runs a step already"):
        session.answer(pending.id, "once")
    ends.set()
    runs.join()
    assert session.answer(pending.id, "once").error is None


def test_coroutines(opened, out):
    async def on_ask(denied):
        await asyncio.sleep(0)
        return "pending"

    async def main():
        session = opened(on_ask)
        pending = (await session.arun(writing(out / "a", after="1"))).pending
        return await session.aanswer(pending.id, "once")

    assert asyncio.run(main()).error is None
    assert os.listdir(out) == ["a"]


def test_code_that_goes_on_after_the_question(opened, out):
    """It does nothing that its policy denies, and its names are gone."""
    code = f"""
n = 1
for name in "ab" * 5:
    try:
        open({str(out)!r} + "/" + name, "w").close()
    except BaseException:
        n += 1
while True:
    try:
        while True: pass
    except BaseException:
        pass
"""
    session = opened(later)
    if opened.place == "here":
        code = code.partition("while True")[0]
    ran = session.run(code)
    assert (ran.killed_by, ran.pending.denied.resolved) == ("pending", str(out / "a"))
    assert (session.names, os.listdir(out), len(session.pending)) == ([], [], 1)


def test_approvals_keep_what_was_answered_later(out, tmp_path):
    on_ask = Approvals(tmp_path / "approvals.toml", later)
    with Policy().session(on_ask=on_ask) as session:
        pending = session.run(writing(out / "a")).pending
        assert session.answer(pending.id, "guard").error is None
    assert str(out / "a") in (tmp_path / "approvals.toml").read_text()


def test_what_waits_needs_a_session(out):
    with Policy().guard(on_ask=later)(), pytest.raises(PermissionError) as denied:
        open(out / "a", "w")
    assert "not 'pending'" in denied.value.answer


def test_a_denial_that_is_allowed_afterwards(opened, out):
    """Names last, which another session would not have."""
    asked = []

    def on_ask(denied):
        asked.append(denied.resolved)
        return "deny"

    session = opened(on_ask)
    session.run("n = 1")
    [denied] = session.run(writing(out / "a")).violations
    session.allow(denied, "once")
    assert session.run(writing(out / "a", "n += 1")).error is None
    assert not session.run(writing(out / "a")).success
    session.allow(denied, "pattern")
    assert session.run(f"{writing(out / 'a')}{writing(out / 'b')}").error is None
    session.undo()
    assert session.run(writing(out / "a")).error is None
    assert (session.get("n"), asked) == (2, [str(out / "a")] * 2)
    assert sorted(os.listdir(out)) == ["a", "b"]


def test_what_cannot_be_allowed(opened, out):
    session = opened(None)
    [denied] = session.run(writing(out / "a")).violations
    with pytest.raises(RuntimeError, match="allow needs a session with on_ask"):
        session.allow(denied)
    session = opened(later)
    with pytest.raises(TypeError, match="denied must be an AuditDenied, not str"):
        session.allow("x")
    with pytest.raises(ValueError, match="answer must be one of"):
        session.allow(denied, "always")


CHANNEL = """
import gc
from fastaudit_rs.sandbox.inside.channel import HostChannel
[channel] = [one for one in gc.get_objects() if type(one) is HostChannel]
def tell(kind, **told):
    try:
        print(channel.call(kind, **told)[0].get("error"), flush=True)
    except BaseException as error:
        print(repr(error), flush=True)
"""


def test_a_guest_that_words_questions(tmp_path, out):
    """It speaks with the host as our code there does: nothing that it says is an answer."""
    pytest.importorskip("sandlock")
    approvable = Policy(write=[str(out)])
    granted = "granted=[['', 'once']], answer='once'"
    with Sandbox(parent=tmp_path, approvable=approvable) as sandbox:
        with sandbox.session(on_ask=later, timeout=2) as session:
            assert session.run(CHANNEL).error is None
            wrong = ("{}", "{'event': 'open'}", "{'event': ['x'] * 1000}", "None", "[]")
            ran = session.run("\n".join(f"tell('ask', denied={each}, {granted})" for each in wrong))
            assert [line.split(":")[0] for line in ran.stdout.splitlines()] == ["{'kind'"] * 5
            ran = session.run(f"tell('answer', {granted}); tell('return', {granted})")
            assert ran.killed_by == "wall_seconds"
            assert session.pending == []
            # It words what is asked, and what it does is asked about once more.
            true = session.run(writing(out / "a")).pending.denied.to_dict()
            lie = true | {"resolved": "/harmless", "path": "/harmless"}
            code = f"{CHANNEL}tell('ask', denied={lie!r}){writing(out / 'a')}"
            pending = session.run(code).pending
            assert pending.denied.resolved == "/harmless"
            ran = session.answer(pending.id, "once")
            assert ran.pending.denied.resolved == str(out / "a")
    assert os.listdir(out) == []


class TestThinking:
    def test_the_time_of_an_answer_is_not_that_of_the_step(self, opened, out):
        def on_ask(denied):
            time.sleep(1)
            return "once"

        session = opened(on_ask, timeout=0.7)
        assert session.run(writing(out / "a")).error is None
        ran = session.run(writing(out / "b", after="while True: pass"))
        assert ran.killed_by == "wall_seconds"
        assert sorted(os.listdir(out)) == ["a", "b"]

    def test_that_of_a_coroutine_is_bounded(self, opened, out):
        async def on_ask(denied):
            await asyncio.sleep(1 if denied.resolved.endswith("a") else 60)
            return "once"

        async def main():
            session = opened(on_ask, timeout=0.7, ask_seconds=2)
            return [await session.arun(writing(out / name)) for name in "ab"]

        answered, unanswered = asyncio.run(main())
        assert (answered.error, unanswered.error.kind) == (None, "fastaudit_rs.AuditDenied")
        assert unanswered.killed_by is None


def test_a_loop_that_waits_for_a_step_is_asked_nothing(opened, out):
    async def on_ask(denied):
        return "once"

    async def main():
        session = opened(on_ask)
        code = writing(out / "a")
        return session.run(code), await session.arun(code)

    held_up, awaited = asyncio.run(main())
    assert "await Session.arun" in held_up.violations[0].answer
    assert awaited.error is None


class TestLangGraph:
    """`interrupt()` in `on_ask` reaches the graph, which runs the node again with the answer."""

    @pytest.fixture(autouse=True)
    def needed(self):
        pytest.importorskip("langgraph")

    @pytest.mark.parametrize("is_async", [False, True])
    def test_interrupt(self, opened, out, is_async):
        from langgraph.checkpoint.memory import InMemorySaver
        from langgraph.graph import START, StateGraph
        from langgraph.types import Command, interrupt

        def on_ask(denied):
            return interrupt({"may": denied.effect, "path": denied.resolved})

        async def on_ask_async(denied):
            return on_ask(denied)

        code = writing(out / "a", "n = n + 1", "n")
        sessions = []

        def node(state):
            ran = sessions[0].run(code)
            return {"value": ran.value}

        async def anode(state):
            ran = await sessions[0].arun(code)
            return {"value": ran.value}

        graph = StateGraph(dict)
        graph.add_node("run", anode if is_async else node)
        graph.add_edge(START, "run")
        compiled = graph.compile(checkpointer=InMemorySaver())
        config = {"configurable": {"thread_id": "1"}}

        async def main():
            sessions.append(opened(on_ask_async if is_async else on_ask))
            sessions[0].run("n = 0")
            if is_async:
                first = await compiled.ainvoke({}, config)
                assert sessions[0].get("n") == 0
                return first, await compiled.ainvoke(Command(resume="once"), config)
            first = compiled.invoke({}, config)
            assert sessions[0].get("n") == 0
            return first, compiled.invoke(Command(resume="once"), config)

        first, second = asyncio.run(main())
        [asked] = first["__interrupt__"]
        assert asked.value == {"may": "write", "path": str(out / "a")}
        assert second["value"] == 1
        assert os.listdir(out) == ["a"]

    @pytest.mark.parametrize("place", ["here", "sandbox"])
    def test_the_tool_of_an_agent(self, out, place):
        from langchain_core.messages import AIMessage
        from langgraph.checkpoint.memory import InMemorySaver
        from langgraph.graph import START, MessagesState, StateGraph
        from langgraph.prebuilt import ToolNode
        from langgraph.types import Command, interrupt

        from fastaudit_rs.adapters.langchain import python_tool

        options = {"approvable": Policy(write=[str(out)])} if place == "sandbox" else {}
        tool = python_tool(Policy(), place, on_ask=lambda denied: interrupt(denied.path), **options)
        graph = StateGraph(MessagesState)
        graph.add_node("tools", ToolNode([tool]))
        graph.add_edge(START, "tools")
        compiled = graph.compile(checkpointer=InMemorySaver())
        config = {"configurable": {"thread_id": "1"}}
        call = {"name": "python", "args": {"code": writing(out / "a", after="40 + 2")}, "id": "1"}
        with contextlib.closing(tool):
            first = compiled.invoke({"messages": [AIMessage("", tool_calls=[call])]}, config)
            assert [one.value for one in first["__interrupt__"]] == [str(out / "a")]
            assert os.listdir(out) == []
            second = compiled.invoke(Command(resume="once"), config)
        assert "42" in second["messages"][-1].content
        assert os.listdir(out) == ["a"]

    def test_a_run_in_a_sandbox(self, tmp_path, out):
        from langgraph.errors import GraphInterrupt

        def on_ask(denied):
            raise GraphInterrupt(())

        approvable = Policy(write=[str(out)])
        with Sandbox(parent=tmp_path, on_ask=on_ask, approvable=approvable) as sandbox:
            with pytest.raises(GraphInterrupt):
                sandbox.run(writing(out / "a", after="open('b', 'w')"))
            assert sandbox.list_files() == []
            assert sandbox.run("1", value=True).value == 1
