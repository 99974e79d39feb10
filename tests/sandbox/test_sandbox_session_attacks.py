"""Code that has got around its guard in a session: it writes into the connection to the host.

The host neither hangs, nor raises anything but what is documented, nor runs what was not named.
"""

import resource
import time

import pytest
from sandboxes import LOOSE, OURS, gone, of

from fastaudit_rs import Limits, Sandbox, SandboxError
from fastaudit_rs.results import Result

#: A way to call functions of the host besides.
CALL = (
    OURS
    + """
def call(name, id, args=(), kwargs={}):
    from fastaudit_rs.sessions.values import pack
    raw({"kind": "call", "id": id, "name": name}, pack([list(args), kwargs]))
"""
)

#: Messages that are malformed, unexpected or not asked for; the step goes on to its end.
LEFT_OUT = {
    "no head": 'write(struct.pack("!Q", 3) + b"abc")',
    "nothing": 'write(struct.pack("!Q", 0))',
    "no JSON": 'raw(b"{")',
    "another type": "raw([1])",
    "no kind": "raw({})",
    "a kind that is none": 'raw({"kind": ["done"]})',
    "a kind that there is not": 'raw({"kind": "root"})',
    "deep": 'raw(b"[" * 100_000)',
    "many values": 'raw(b"[" + b"0," * 500_000 + b"0]")',
    "a long head": 'raw(b" " * (3 << 20))',
    "a long number": 'raw({"kind": "done", "number": int("9" * 4000)})',
    "done of another step": 'raw({"kind": "done", "number": number + 1, "status": 0})',
    "done of an earlier step": 'raw({"kind": "done", "number": 1, "status": 0})',
    "a denial that is none": 'raw({"kind": "denied", "denied": {"event": 1}})',
    "denials of no kind": 'raw({"kind": "denied"}); raw({"kind": "denied", "denied": [[]]})',
    "a tool that there is not": 'call("system", 900, ["id"])',
    "a method of a tool": 'call("add.__globals__", 901)',
    "a call without a number": 'raw({"kind": "call", "name": "add"})',
    "a call with odd names": 'raw({"kind": "call", "id": 902, "name": ["add"]})',
    "a call with no data": 'raw({"kind": "call", "id": 903, "name": "add"}, b"x")',
    "a call with a long head": """raw({"kind": "call", "id": 904, "name": "add"},
        struct.pack("!Q", 1 << 62))""",
    "a call with odd arguments": 'call("add", 905, 5 * [1], {"1": {}})',
    "a question": 'raw({"kind": "ask", "id": 5, "denied": {}}); raw({"kind": "ask", "denied": 1})',
    "an answer": 'raw({"kind": "return", "id": 1}); raw({"kind": "answer", "number": 5})',
    "a copy that is none": """
for process in (1, 0, -1, os.getpid(), os.getppid(), 1 << 40, "1", None, True):
    raw({"kind": "copied", "process": process, "number": number})
""",
    "many copies": """
for _ in range(1000): raw({"kind": "copied", "process": 1, "number": number})
""",
    "many denials": """
for _ in range(5000): raw({"kind": "denied", "denied": {}})
""",
}

#: Messages that end the step, whose result says so: `run` never raises.
ENDS = {
    "a huge length": 'write(struct.pack("!Q", (1 << 64) - 1))',
    "a length above the limit": 'write(struct.pack("!Q", (96 << 20) + 1))',
    "a huge length to all": """
for number in range(3, 200):
    try: os.write(number, b"\\xff" * 16)
    except OSError: pass
time.sleep(60)
""",
    "half a message": 'write(struct.pack("!Q", 100) + b"x"); time.sleep(60)',
    "a flood": """
while True: raw({"kind": "denied", "denied": {}})
""",
    "a flood of bytes": """
while True: write(struct.pack("!Q", 1 << 20) + bytes(1 << 20))
""",
    "a closed connection": "os.close(channel.fileno()); time.sleep(60)",
    "a connection that is shut down": "channel._connection.shutdown(2); time.sleep(60)",
    "another end": "os.dup2(os.open('/dev/null', 2), channel.fileno()); time.sleep(60)",
    "stopped": """
import subprocess
subprocess.run(["/bin/sh", "-c", f"kill -STOP {os.getpid()}"])
time.sleep(60)
""",
    "no interrupts": """
channel.interrupted = lambda *_: None
channel.interruptible = False
while True: time.sleep(0.1)
""",
}


def add(a, b=1):
    return a + b


@pytest.fixture(scope="module")
def shared():
    with Sandbox(LOOSE, Limits(wall_seconds=3, output=1 << 20)) as made:
        yield made


@pytest.fixture
def session(shared):
    with shared.session(tools={"add": add}) as made:
        made.run("x = 1")
        yield made


def hostile(session, code):
    """Run code with our own objects in the next step."""
    return session.run(f"{CALL}number = {session._exchanges.number + 1}\n{code}")


@pytest.mark.slow
@pytest.mark.parametrize("name", LEFT_OUT)
def test_messages_that_are_left_out(session, name):
    ran = hostile(session, f"{LEFT_OUT[name]}\n'end'")
    assert (ran.returncode, ran.value, ran.killed_by) == (0, "end", None), ran.error
    assert session.run("x, add(2)").value == (1, 3)
    for change in (session.undo, session.reset):
        try:
            change()
        except (RuntimeError, SandboxError):
            continue
    session.reset()
    assert session.run("add(1)").value == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDS)
def test_messages_that_end_a_step(session, name):
    begun = time.monotonic()
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ran = hostile(session, ENDS[name])
    assert isinstance(ran, Result) and not ran.success, ran
    assert time.monotonic() - begun < 15
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 400 << 10
    session.reset()
    assert session.run("add(1)").value == 2


#: The outcome of a step as it is forged.
FORGED = {
    "status": '{"status": "0"}',
    "error": '{"error": {"kind": {}, "line": "x"}}',
    "errors": '{"error": ["kind"]}',
    "shown": '{"shown": 10**30}',
    "shown below": '{"shown": -5}',
    "shown is none": '{"shown": "0"}',
    "value_error": '{"value_error": {"a": 1}}',
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_outcomes(session, name):
    code = (
        f'raw({{"kind": "done", "number": number, **{FORGED[name]}}}, b"xyz" * 20); time.sleep(9)'
    )
    ran = hostile(session, code)
    assert isinstance(ran, Result) and type(ran.returncode) is int
    assert ran.display == [] and ran.value is None
    assert repr(ran) and ran._repr_html_()


def test_a_forged_value_is_no_code(session):
    body = (
        'struct.pack("!Q", 60) + b\'{"value": {"$": "object", "x": 1}, "lengths": []}\'.ljust(60)'
    )
    code = (
        f'raw({{"kind": "done", "number": number, "shown": 0, "status": 0}}, {body}); time.sleep(9)'
    )
    ran = hostile(session, code)
    assert ran.value is None and "cannot be read" in ran.value_error


@pytest.mark.slow
def test_functions_are_called_with_data_alone(session):
    """And no more often than they may be."""
    seen = []
    session.run("1", tools={"see": lambda *args: seen.append(args)})
    hostile(session, 'for n in range(3000): call("see", 1000 + n, [n, (1, "a")])\nadd(1)')
    assert len(seen) == 1000 and seen[0] == (0, (1, "a"))


def big():
    return b"x" * (4 << 20)


async def slow():
    return b"x" * (4 << 20)


@pytest.mark.parametrize("name", ["big", "slow"])
@pytest.mark.slow
def test_answers_that_nobody_reads(shared, name):
    """They wait in the host's memory: from some on a call is an error."""
    from fastaudit_rs.sandbox.host import calls

    tools = {"big": big, "slow": slow}
    with shared.session(tools=tools) as session:
        session.run("x = 1")
        most = []
        unread = calls.Calls._return

        def returned(self, *args, **told):
            unread(self, *args, **told)
            most.append(self._channel.unread())

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(calls.Calls, "_return", returned)
            code = f"for number in range(300): call({name!r}, number)\ntime.sleep(0.5)"
            ran = hostile(session, code)
        assert len(most) >= 100
        assert max(most) <= calls.UNREAD + (5 << 20)
        assert ran.success and session.run("x").value == 1


@pytest.mark.slow
def test_denials_that_are_long(session):
    """A step's denials have a bound of bytes together, as the report of a run has."""
    code = """
told = {"kind": "denied", "denied": AuditDenied("x" * (1 << 20)).to_dict()}
for _ in range(40): raw(told)
"""
    ran = hostile(session, "from fastaudit_rs import AuditDenied\n" + code)
    assert 10 < len(ran.violations) < 17


@pytest.mark.slow
def test_a_function_is_called_in_a_step_alone(session):
    seen = []
    session.run("1", tools={"see": seen.append})
    hostile(session, 'threading.Timer(0.3, call, ("see", 700, [1])).start()')
    time.sleep(0.6)
    assert seen == []


def test_a_copy_to_go_back_to_that_code_has_killed(session):
    hostile(session, "y = 2")
    ran = session.run(
        "import subprocess, sys\n"
        "program = '''\n"
        "import os, signal\n"
        "own = {os.getpid(), os.getppid(), int(os.sys.argv[1])}\n"
        "for name in os.listdir('/proc'):\n"
        "    if name.isdigit() and int(name) not in own:\n"
        "        try: os.kill(int(name), 9)\n"
        "        except OSError: pass\n"
        "'''\n"
        "subprocess.run([sys.executable, '-I', '-c', program, str(os.getpid())]).returncode"
    )
    assert ran.returncode in (0, 77), ran
    begun = time.monotonic()
    try:
        session.undo()
    except (SandboxError, RuntimeError):
        session.reset()
    assert time.monotonic() - begun < 12
    assert session.run("add(1)").value == 2


def test_processes_that_steps_leave_end_with_it():
    with Sandbox(LOOSE) as sandbox:
        with sandbox.session(undo_depth=2) as session:
            code = "import subprocess, sys\nsubprocess.Popen(['setsid', 'sleep', '60'])"
            for _ in range(3):
                assert session.run(code).success
            session.undo()
        assert gone(of(sandbox))


def test_threads_that_write_without_end(session):
    code = "def write():\n  while True: print('x' * 1000)\n"
    code += "threading.Thread(target=write, daemon=True).start()"
    hostile(session, code)
    begun = time.monotonic()
    for _ in range(3):
        ran = session.run("1")
        assert len(ran.stdout) <= 1 << 20
    session.reset()
    assert time.monotonic() - begun < 12
    assert session.run("add(1)").value == 2


#: What the host asks between steps, and code there that gives no answer.
BETWEEN_STEPS = {
    "names": ("StepContext.named", lambda session: session.names),
    "save": ("StepContext.record", lambda session: session.save({})),
}


@pytest.mark.parametrize("name", BETWEEN_STEPS)
def test_questions_without_an_answer(monkeypatch, name):
    """Steps may have no limit of time; what the host asks between them has."""
    monkeypatch.setattr("fastaudit_rs.sandbox.host.exchange.BETWEEN", 0.5)
    replaced, ask = BETWEEN_STEPS[name]
    code = f"""
import time
from fastaudit_rs.sessions import step
def goes_on(*given):
    while True:
        try: time.sleep(1)
        except BaseException: pass
step.{replaced} = goes_on
"""
    with Sandbox(LOOSE, Limits(wall_seconds=None)) as sandbox, sandbox.session() as session:
        assert session.run(code).success
        with pytest.raises(SandboxError, match="gave no answer"):
            ask(session)
        # It went back to the state before.
        assert session.names == []
