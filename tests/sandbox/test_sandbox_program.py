"""A run has what a step of a session has: values, tools, a limit, `await`, what it shows."""

import asyncio
import os
import re
import socket
import sys
import time

import pytest

from fastaudit_rs import Network, Policy, Sandbox
from fastaudit_rs.results import Timings


@pytest.fixture(scope="module")
def box():
    with Sandbox() as made:
        yield made


def test_tracebacks_have_source_lines(box, tmp_path):
    code = "def f():\n    1 / 0\nf()"
    (tmp_path / "program.py").write_text(code)
    for program in (code, tmp_path / "program.py"):
        ran = box.run(program)
        assert "line 2, in f\n    1 / 0\n" in ran.error.traceback == ran.stderr
    assert "\n    a b\n" in box.run("a b").stderr


def test_variables(box):
    numpy = pytest.importorskip("numpy")
    given = {"x": [1, {"a"}], "y": numpy.arange(3)}
    assert box.run("print(x, y.sum())", variables=given).stdout == "[1, {'a'}] 3\n"
    with pytest.raises(TypeError, match="variables"):
        box.run("1", variables={"x": object()})
    with pytest.raises(ValueError, match=r"variables\['x'\] is too large: 65.0 MB"):
        box.run("1", variables={"x": b"x" * (65 << 20)})


def price(item: str) -> float:
    return {"tea": 3.5}[item]


async def aprice(item: str) -> float:
    await asyncio.sleep(0.01)
    return price(item)


def test_tools(box):
    tools = {"price": price, "aprice": aprice}
    assert box.run("price('tea'), await aprice('tea')", value=True, tools=tools).value == [3.5, 3.5]
    assert box.run("print(price('salt'))", tools=tools).error.kind == "KeyError"
    code = "import threading\nt = threading.Thread(target=lambda: print(price('tea')))\nt.start()"
    assert box.run(code, tools=tools).stdout == "3.5\n"
    assert box.run("price").error.kind == "NameError"
    ran = asyncio.run(box.arun("await aprice('tea')", value=True, tools=tools))
    assert ran.value == 3.5
    code = "for _ in range(1001): price('tea')"
    assert "more than 1000 calls" in str(box.run(code, tools=tools).error)
    with pytest.raises(TypeError, match="tools must be a mapping"):
        box.run("1", tools=3)


def test_a_time_limit_of_its_own(box):
    ran = box.run("while True: pass", timeout=0.3)
    assert (ran.killed_by, ran.duration < 5) == ("wall_seconds", True)
    ran = box.run("wait(); print(1)", tools={"wait": lambda: time.sleep(0.6)}, timeout=0.3)
    assert (ran.killed_by, ran.stdout) == ("wall_seconds", "")
    with pytest.raises(ValueError, match="timeout must be positive"):
        box.run("1", timeout=0)


def test_await_at_the_top_level(box):
    code = """
import asyncio
async def late():
    await asyncio.sleep(9)
task = asyncio.create_task(late())
print(await asyncio.sleep(0.01, "done"))
"""
    assert box.run(code).stdout == "done\n"
    assert box.run("import asyncio\nawait asyncio.sleep(0, 3)", value=True).value == 3
    ran = box.run("import asyncio\nasync def f():\n    raise KeyError(1)\nawait f()")
    assert (ran.error.kind, ran.error.line) == ("KeyError", 3)
    assert ran.stderr.count("File") == 2
    assert box.run("import asyncio\nasyncio.run(asyncio.sleep(0))").error is None


def test_what_a_run_shows(box):
    pytest.importorskip("matplotlib")
    code = "import matplotlib.pyplot as plt\nplt.plot([1])\ndisplay({'text/html': '<p>'}, raw=True)"
    shown = box.run(code, value=True).display
    assert [sorted(one) for one in shown] == [
        ["text/html"],
        ["application/vnd.fastaudit.chart+json", "image/png", "text/plain"],
    ]
    assert shown[1]["image/png"].startswith(b"\x89PNG")
    assert box.run(f"{code}\n1 / 0", value=True).display[0] == {"text/html": "<p>"}
    assert box.run("import matplotlib.pyplot as plt\nplt.plot([1])").display == []


#: What code that has got around its guard may say of what it has shown, and what comes of it.
FORGED = {
    '{"display": 1}': [],
    '{"display": [1, {"a": 2, "b": [1], "c": ["%"], "d": ["eA=="], "e": "f"}]}': [
        {},
        {"d": b"x", "e": "f"},
    ],
}


@pytest.mark.parametrize("line", FORGED)
def test_forged_displays(line):
    from fastaudit_rs.sandbox.host.run import told

    assert told(line.encode() + b"\n")[0]["display"] == FORGED[line]


def test_timings(box):
    ran = box.run("import time; time.sleep(0.2)")
    spent = ran.timings
    assert spent.waited > 0 and spent.started > 0 and 0.2 <= spent.ran < ran.duration
    assert spent.started + spent.ran + spent.reported == pytest.approx(ran.duration, abs=1e-5)
    assert box.run("1 / 0").timings.started > 0
    assert box.run("while True: pass", timeout=0.3).timings.ran > 0.3


#: When code that has got around its guard may say that it ran.
SAID = [
    *(None, 1, [], [1.0], [1, 2], ["1", 2.0], [0.5, 2.0], [1.5, 1.2], [2.0, 99.0]),
    [1.0, float("nan")],
]


@pytest.mark.parametrize("said", SAID)
def test_forged_timings(said):
    told = Timings.between(0.5, 1.0, 3.0, said)
    assert (told.waited, told.started, told.ran, told.reported) == (0.5, 0.0, 2.0, 0.0)


def test_a_server_in_the_background(make_sandbox):
    """The host reaches it between steps."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    network = Network(hosts=[], listen=[f"127.0.0.1:{port}"])
    code = f"""
import asyncio
async def serve(reader, writer):
    writer.write(b"hello")
    writer.close()
server = await asyncio.start_server(serve, "127.0.0.1", {port})
"""
    with make_sandbox(Policy.preset("sandbox").replace(network=network)).session() as session:
        assert session.run(code).error is None
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                assert connection.recv(10) == b"hello"
            assert session.run("1").value == 1


def test_a_policy_holds_for_it(make_sandbox):
    sandbox = make_sandbox(Policy())
    ran = sandbox.run("await go()", tools={"go": aprice})
    assert ran.error.kind == "TypeError"
    ran = sandbox.run("import asyncio\nawait asyncio.sleep(0)\nopen('/x', 'w')")
    assert (ran.returncode, ran.violations[0].path) == (77, "/x")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="errors have notes from Python 3.11 on")
def test_locks_of_processes(box):
    code = "import multiprocessing\nmultiprocessing.Lock()"
    needs = "the host allows it with write=['.', '/dev/shm']"
    assert needs in box.run(code).error.traceback
    with box.session() as session:
        assert needs in session.run(code).for_model()


def test_the_name_of_the_system(box):
    """pip asks for it, and fails if it may not read it."""
    paths = ("/etc/os-release", "/etc/lsb-release", "/etc/debian_version")
    for path in filter(os.path.exists, paths):
        assert box.run(f"open({path!r}).read()").success


def test_a_policy_without_imports(make_sandbox):
    """What running the code takes is no import of the code."""
    sandbox = make_sandbox(Policy.preset("sandbox").replace(imports=[], commands=True))
    assert sandbox.run("1", value=True).value == 1
    assert sandbox.run("async def f(): return 3\nawait f()", value=True).value == 3
    assert sandbox.run("f()", value=True, tools={"f": lambda: 4}).value == 4
    assert sandbox.run("x", value=True, variables={"x": 5}).value == 5
    assert sandbox.commands.run("echo 6").stdout == "6\n"
    with sandbox.session() as session:
        assert session.commands.run("echo 7").stdout == "7\n"
        assert session.run("async def f(): return 8\nawait f()").value == 8
        assert session.run("input()", stdin="9").value == "9"


#: Names of other packages' sandboxes, and what the error names.
OTHERS = {
    "run_code": "here it is run() or session().run()",
    "copy_to_runtime": "here it is files.upload()",
    "kill": "here it is close()",
    "list_file": "did you mean 'list_files'?",
    "zzz": "no attribute 'zzz'",
}


@pytest.mark.parametrize("name", OTHERS)
def test_names_that_people_look_for(box, name):
    with pytest.raises(AttributeError, match=re.escape(OTHERS[name])):
        getattr(box, name)
    assert not hasattr(box, name)


@pytest.mark.parametrize(
    ("code", "kept"),
    [
        ("import sys\nprint('said', file=sys.stderr)\n1 / 0", "stderr:\nsaid\n\nerror:\nTraceback"),
        ("x = = 1", "error:\n  File"),
        ("try: 1 / 0\nexcept Exception as e: raise ValueError from e", "error:\nTraceback"),
        (
            "import traceback\ntry: 1 / 0\nexcept ZeroDivisionError: traceback.print_exc()\n1 / 0",
            "stderr:\nTraceback",
        ),
    ],
)
def test_a_model_reads_an_exception_once(box, code, kept):
    """A program writes it to its standard error, which has it too."""
    ran = box.run(code)
    told, last = ran.for_model(), ran.error.traceback.splitlines()[-1]
    assert told.startswith(kept) and last in ran.stderr
    assert told.splitlines().count(last) == (2 if "print_exc" in code else 1)
