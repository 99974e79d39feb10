"""What a user reads of each kind of denial, in each place: the table of `surfaces.md`.

Read the table as a whole when it changes. `FASTAUDIT_RS_WRITE_PAGE=1` writes it.
"""

import asyncio
import os
import re
from pathlib import Path

import pytest

from fastaudit_rs import AuditDenied, Policy
from fastaudit_rs.tools.mcp_server import server

TABLE = Path(__file__).with_name("surfaces.md")

POLICY = """
write = ["DIR/out"]
block = ["/etc/shadow"]
max_bytes = 100
network = false
imports = {block = ["webbrowser"]}
unknown_events = "deny"
"""

KINDS = {
    "write": "open('/srv/a', 'w')",
    "append": "open('/srv/a', 'a')",
    "mkdir": "import os; os.mkdir('/srv/a')",
    "remove": "import os; os.remove('DIR/kept/a')",
    "rename": "import os; os.rename('/srv/a', '/srv/b')",
    "copy": "import shutil; shutil.copyfile('/etc/hosts', '/srv/hosts')",
    "tree": "import shutil; shutil.rmtree('DIR/kept')",
    "link": "import os; os.symlink('/etc', 'DIR/out/link')",
    "mode": "import os; os.chmod('/srv/a', 0o777)",
    "database": "import sqlite3; sqlite3.connect('/srv/a.db')",
    "block": "open('/etc/shadow')",
    "protect": "open('DIR/out/.bashrc', 'w')",
    "max_bytes": "open('DIR/out/a', 'wb', buffering=0).write(bytes(200))",
    "program": "import subprocess; subprocess.run(['git', 'push', '--force'])",
    "shell": "import os; os.system('rm -rf /srv')",
    "signal": "import os; os.kill(1, 15)",
    "exit": "import os; os._exit(0)",
    "thread": "import threading; threading.Thread(target=print).start()",
    "variable": "import os; os.environ['TOKEN'] = 'x'",
    "look up": "import socket; socket.getaddrinfo('example.org', 443)",
    "connect": "import socket; socket.socket().connect(('192.0.2.1', 443))",
    "listen": "import socket; socket.socket().bind(('0.0.0.0', 8000))",
    "import": "import webbrowser",
    "library": "import ctypes; ctypes.CDLL('libm.so.6')",
    "event": "import sys; sys.audit('somelib.event', 1)",
}


@pytest.fixture
def work(tmp_path):
    work = tmp_path / "work"
    (work / "out").mkdir(parents=True)
    (work / "kept").mkdir()
    (work / "kept/a").touch()
    (work / "policy.toml").write_text(POLICY.replace("DIR", str(work)))
    return work


def in_the_shell(codes, work, command):
    run = ("run", "--policy", str(work / "policy.toml"), "-c")
    return [command(*run, code).stderr for code in codes]


def in_a_notebook(codes, work):
    import kernels

    with kernels.started(work, {**os.environ, **kernels.home_of(work / "home")}) as kernel:
        kernel("%load_ext fastaudit_rs")
        return [kernel(f"%%audit --policy policy.toml\n{code}").error for code in codes]


def in_tests(codes, work, run):
    marker = f"@pytest.mark.audit(policy={str(work / 'policy.toml')!r})"
    tests = [f"{marker}\ndef test_{at}():\n    {code}\n" for at, code in enumerate(codes)]
    told = run("\n".join(tests), "-p", "no:randomly", "--tb=short").stdout.str()
    told = told.partition("short test summary")[0]
    return [re.sub("^E +", "", test, flags=re.M) for test in re.split("_+ test_\\d+ _+", told)[1:]]


def in_a_session(codes, work):
    told = []
    for code in codes:
        with Policy.from_toml(work / "policy.toml").session(directory=work) as session:
            told.append(session.run(code).for_model())
    return told


def of_mcp(codes, work):
    mcp = pytest.importorskip("mcp")

    def opens():
        return Policy.from_toml(work / "policy.toml").session(directory=work)

    async def talk():
        told = []
        for code in codes:
            async with mcp.Client(server(opens)) as client:
                told.append(await client.call_tool("run_python", {"code": code}))
        return [result.content[0].text for result in told]

    return asyncio.run(asyncio.wait_for(talk(), 60))


def parts(told):
    """The first line and the hint of a denial in a text."""
    [told] = re.findall(r"(?<!Audit)(Denied: .*?)\nThis is a decision", told, re.S)[:1] or [told]
    first, _, rest = told.partition("\n")
    return first, rest.partition("To allow it: ")[2].replace("\n", " ⏎ ")


@pytest.mark.slow
@pytest.mark.skipif("sys.version_info < (3, 13)", reason="has no event for each thread")
def test_the_table(work, command, run):
    codes = [code.replace("DIR", str(work)) for code in KINDS.values()]
    told = {
        "shell": in_the_shell(codes, work, command),
        "notebook": in_a_notebook(codes, work),
        "pytest": in_tests(codes, work, run),
        "session": in_a_session(codes, work),
        "MCP": of_mcp(codes, work),
    }
    text = "# Denials, as each place shows them\n"
    for at, (kind, code) in enumerate(KINDS.items()):
        shown = {place: parts(texts[at]) for place, texts in told.items()}
        text += f"\n## {kind}: `{code}`\n\n"
        for first in dict.fromkeys(first for first, _ in shown.values()):
            text += f"    {first}\n"
        text += "\n" + "".join(f"- {place}: `{hint}`\n" for place, (_, hint) in shown.items())
    text = text.replace(os.path.realpath(work), "DIR").replace(str(work), "DIR")
    text = re.sub(r"'[^']*/runpytest-\d+'", "'TMP'", text)
    if "FASTAUDIT_RS_WRITE_PAGE" in os.environ:
        TABLE.write_text(text)
    assert text == TABLE.read_text()


@pytest.mark.parametrize(
    ("code", "first"),
    [
        ("import os; os.system('a\\n\\x1b[2Jb')", r"run the shell command a\n\u{1b}[2Jb"),
        (
            "import os; os.mkdir('a\\n\\x1b[2Jb')",
            r"make the directory 'a\n\x1b[2Jb': nothing may be written",
        ),
        ("import sys; sys.audit('fastaudit.call', 'a')", "call a native function"),
        ("import sys; sys.audit('os.symlink')", "make a symbolic link"),
        ("import sys; sys.audit('subprocess.Popen')", "start a program"),
        ("import sys; sys.audit('socket.connect')", "connect to an address"),
        ("import sys; sys.audit('fastaudit.write')", "write more than `max_bytes`"),
        ("import sys; sys.audit('a\\nb')", r"the unknown audit event a\nb with the arguments ()"),
        (
            "import sys; sys.audit('a' * 999)",
            f"the unknown audit event {'a' * 200}… with the arguments ()",
        ),
    ],
)
def test_a_first_line_is_one_line_that_a_terminal_shows(code, first):
    policy = Policy(unknown_events="deny", network=False)
    with policy.guard(monitor_calls=False)(), pytest.raises(AuditDenied) as caught:
        exec(code)
    assert caught.value.message == f"Denied: {first}"
