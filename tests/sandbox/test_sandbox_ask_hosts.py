"""Questions about hosts that the policy does not allow: the proxy asks, whatever connects."""

import asyncio
import contextlib
import socket
import threading
import time

import pytest
from egress_servers import resolver, served
from sandboxes import LOOSE

from fastaudit_rs import Limits, Network, Policy, Sandbox

pytest.importorskip("h11")

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")

OWN = LOOSE.replace(network=Network(hosts=["own.test"]))

#: What answers may open: two hosts by their names, others of the internet, and no port 9.
MOST = Policy(network=Network(hosts=["good.test", "other.test", "*"], block=["blocked.test"]))

#: Ways to connect: under the guard, and in a program that has none.
WAYS = {
    "code": "import urllib.request as u\nprint(u.urlopen({url!r}).read())",
    "a program": "import subprocess, sys\nprogram = 'import sys, urllib.request as u; "
    "print(u.urlopen(sys.argv[1]).read())'\nran = subprocess.run([sys.executable, '-I', '-c', "
    "program, {url!r}], capture_output=True, text=True)\nprint(ran.stdout)\n"
    "assert not ran.returncode, ran.stderr",
}


@pytest.fixture
def site(monkeypatch):
    names = ("own.test", "good.test", "other.test", "into.test", "blocked.test")
    monkeypatch.setattr(socket, "getaddrinfo", resolver(dict.fromkeys(names, "127.0.0.1")))
    with served() as found:
        yield found


@pytest.fixture
def asking(site):
    """`asking(*answers, **options)`: a sandbox that asks, and the questions so far."""
    with contextlib.ExitStack() as stack:

        def make(*answers, **options):
            asked, left = [], list(answers)

            def on_ask(denied):
                asked.append((denied.host, denied.answers, threading.current_thread()))
                answer = left.pop(0) if len(left) > 1 else left[0]
                if isinstance(answer, BaseException):
                    raise answer
                return answer

            options = {"on_ask": on_ask, "approvable": MOST, **options}
            sandbox = Sandbox(OWN, Limits(wall_seconds=30), **options)
            return stack.enter_context(sandbox), asked

        yield make


def get(site, host, way="code"):
    return WAYS[way].format(url=f"http://{host}:{site.port}/")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", ["run", "session"])
def test_answers(asking, site, way, place):
    """Each connection is asked about, unless an answer holds for it; only with hosts of others."""
    sandbox, asked = asking("once", "deny", "guard", "never")
    with sandbox.session() as session:
        run = session.run if place == "session" else sandbox.run
        assert run(get(site, "own.test", way)).success and asked == []
        assert run(get(site, "good.test", way)).success
        ran = run(get(site, "good.test", way))
        assert not ran.success and len(site.seen) == 2
        (denied,) = ran.violations
        assert (denied.host, denied.rule, denied.answer) == ("good.test", "network.hosts", "deny")
        assert str(denied).startswith(f"Denied: connect to good.test:{site.port}")
        assert [(each.host, each.rule) for each in ran.requests] == [("good.test", "network.hosts")]
        ran = run(get(site, "good.test", way) + "\n" + get(site, "good.test", way))
        assert ran.success, ran.stderr
    assert [host for host, *_ in asked] == ["good.test"] * 3
    assert asked[0][1] == ("once", "guard", "deny", "never")
    assert {thread for *_, thread in asked} == {threading.current_thread()}


def test_never_is_kept(asking, site):
    sandbox, asked = asking("never")
    with sandbox.session() as session:
        assert not session.run(get(site, "good.test")).success
        assert not session.run(get(site, "good.test")).success
        assert [host for host, *_ in asked] == ["good.test"]
        session.reset()
        assert not session.run(get(site, "good.test")).success
    assert len(asked) == 2 and site.seen == []


def test_what_nobody_is_asked_about(asking, site):
    """What answers may not open, and what comes where nobody is there to ask."""
    sandbox, asked = asking("once")
    assert not sandbox.run(get(site, "blocked.test")).success and asked == []
    silent, _ = asking("once", on_ask=None)
    ran = silent.run(get(site, "good.test", "a program"))
    assert not ran.success and site.seen == []
    assert {each.rule for each in ran.requests} == {"network.hosts"}


def test_an_answer_opens_nothing_of_this_network(asking, site):
    """It was about a name, which somebody else leads to an address."""
    sandbox, asked = asking("guard")
    ran = sandbox.run(get(site, "into.test"))
    assert not ran.success and [host for host, *_ in asked] == ["into.test"] and site.seen == []


def test_this_machine_by_its_name(asking, site):
    sandbox, asked = asking("guard")
    assert sandbox.run(get(site, "localhost") + "\n" + get(site, "127.0.0.1")).success
    assert [host for host, *_ in asked] == ["localhost"] and len(site.seen) == 2


@pytest.mark.slow
def test_errors_of_the_host(asking, site):
    sandbox, asked = asking(ValueError("broken"), 5, "odd", None, KeyboardInterrupt(), "once")
    with sandbox.session() as session:
        ran = [session.run(get(site, "good.test")) for _ in range(4)]
        assert not any(one.success for one in ran)
        assert ran[0].violations[0].answer == "on_ask raised ValueError: broken"
        with pytest.raises(KeyboardInterrupt):
            session.run(get(site, "good.test"))
        assert session.run(get(site, "good.test")).success
    assert len(asked) == 6 and len(site.seen) == 1


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_coroutine_answers(site, way):
    """In the loop of `arun`, as long as it may take."""
    loops = []

    async def on_ask(denied):
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(30 if denied.host == "other.test" else 0.01)
        return "once"

    async def main():
        options = {"on_ask": on_ask, "ask_seconds": 0.3, "approvable": MOST}
        async with Sandbox(OWN, Limits(wall_seconds=60), **options) as sandbox:
            async with await sandbox.asession() as session:
                ran = [
                    await place.arun(get(site, host, way))
                    for place in (sandbox, session)
                    for host in ("good.test", "other.test")
                ]
        assert set(loops) == {asyncio.get_running_loop()}
        return [one.success for one in ran]

    assert asyncio.run(main()) == [True, False] * 2


def test_nobody_waits_for_a_question_of_no_step(asking, site):
    """A thread that goes on between steps is denied, and so is one whose step has ended."""
    sandbox, asked = asking("once")
    code = f"""
import threading, time, urllib.request as u
found = []
def get():
    while not go:
        time.sleep(0.01)
    try:
        found.append(u.urlopen("http://good.test:{site.port}/").status)
    except OSError as error:
        found.append(error.code)
go = []
thread = threading.Thread(target=get)
thread.start()
"""
    later = "threading.Timer(0.2, lambda: go.append(1)).start()"
    with sandbox.session() as session:
        session.run(code)
        session.run(later)
        # It asks meanwhile.
        time.sleep(1)
        assert session.run("thread.join(10); found").value == [403]
    assert asked == [] and site.seen == []


def test_a_step_that_ends_before_its_answer(site):
    """The question is dropped, and the next one is asked."""
    asked = []

    async def on_ask(denied):
        asked.append(denied.host)
        await asyncio.sleep(60 if len(asked) == 1 else 0)
        return "once"

    with Sandbox(OWN, on_ask=on_ask, approvable=MOST) as sandbox, sandbox.session() as session:
        # A person's time is not the step's.
        threading.Timer(1, session.interrupt).start()
        ran = session.run(get(site, "good.test"), timeout=0.5)
        assert ran.killed_by == "interrupt" and site.seen == []
        assert session.run(get(site, "good.test")).success
    assert asked == ["good.test"] * 2


@pytest.mark.slow
def test_many_questions(asking, site):
    """As many as a step may ask; others are denied, and nothing waits for ever."""
    sandbox, asked = asking("deny")
    code = f"""
import concurrent.futures, urllib.request as u
def get(n):
    try:
        u.urlopen("http://good.test:{site.port}/")
    except OSError as error:
        return type(error).__name__
with concurrent.futures.ThreadPoolExecutor(20) as threads:
    found = set(threads.map(get, range(60)))
found
"""
    with sandbox.session(tool_calls=10) as session:
        ran = session.run(code)
        assert ran.error is None, ran.error
    assert len(asked) == 10 and site.seen == []


def test_a_question_of_a_step_that_has_ended():
    """It is denied, whether or not somebody was asked; an answer that comes later is too late."""
    from fastaudit_rs.sandbox.host.egress.asking import HostQuestions

    questions = HostQuestions()
    assert questions.put("early.test", 80, "network.hosts").result(0) is False
    questions.begin()
    waiting = [questions.put(host, 80, "network.hosts") for host in ("asked.test", "next.test")]
    asked = questions.take()
    questions.end()
    assert [future.result(0) for future in waiting] == [False, False]
    questions.answer(asked, "guard")
    assert [denied.host for denied in questions.taken()] == ["asked.test", "next.test"]
    assert (questions.take(), questions.put("asked.test", 80, "network.hosts").result(0)) == (
        None,
        False,
    )
