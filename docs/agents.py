"""A CodeAct agent of thirty steps: a scripted model, tools, approvals, and a session.

The same host runs it in this process, under a guard, and in a sandbox, behind the kernel:
`python agents.py here` and `python agents.py sandbox` print the same lines.
"""

import http.server
import os
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy

from fastaudit_rs import AuditDenied, Limits, Policy, Sandbox
from fastaudit_rs.results import Result
from fastaudit_rs.sessions.base import Session

#: The model's part: the code of each step.
STEPS = [
    # State lasts: names, imports, the working directory.
    "import math, os\nside = 3",
    "math.hypot(side, 4)",
    "def area(width):\n    return width * side",
    "[area(width) for width in (1, 2)]",
    "os.mkdir('data')\nos.chdir('data')\nos.path.basename(os.getcwd())",
    "with open('sales.csv', 'w') as file:\n    file.write('day,sold\\nMon,3\\nTue,5\\n')",
    "os.path.basename(os.getcwd()), os.listdir()",
    # The last expression's value comes back, and what a notebook would show.
    "import pandas\nsales = pandas.read_csv('sales.csv')\nsales",
    "import matplotlib.pyplot as plt\n_ = plt.plot(sales['sold'])",
    "print(sales['sold'].sum())\nsales['sold'].mean()",
    # Tools: the host's functions, with the host's rights.
    "save('sales.txt', sales.to_csv(index=False))",
    "rate = fetch('/rates/CHF')\nrate",
    "await ask_expert('is it plausible?')",
    "import asyncio\nawait asyncio.gather(ask_expert('one'), ask_expert('two'))",
    "save('../sales.txt', '')",
    "save(open, '')",
    # Overreach asks the host: once, for the guard, for a pattern, never.
    "open(shared + '/once.txt', 'w').close()",
    "open(shared + '/once.txt', 'w').close()",
    "open(shared + '/log.txt', 'w').close()",
    "open(shared + '/log.txt', 'a').close()",
    "open(shared + '/reports/mon.txt', 'w').close()",
    "open(shared + '/reports/tue.txt', 'w').close()",
    "open(shared + '/keys.txt', 'w').close()",
    # A denial that code swallows is reported all the same.
    "try:\n    open(shared + '/keys.txt', 'w')\nexcept OSError:\n    print('never mind')",
    # A step that does not end; the next one goes on where the one before it was.
    "while True:\n    side += 0",
    "side",
    # A step that the host takes back.
    "side = 'broken'",
    "area(2)",
    # Values of the host's.
    "measured.mean(), measured.shape",
    "answer = {'side': side, 'sold': int(sales['sold'].sum())}\nanswer",
]


class Host:
    """A host: its tools, its directory, and its answers."""

    def __init__(self, base: Path, address: str) -> None:
        """Begin without answers."""
        self.base = base
        self.address = address
        self.shared = base / "shared"
        #: The names that somebody was asked about, in all and in this step.
        self.seen: set[str] = set()
        self.asked: list[str] = []

    def save(self, name: str, text: str) -> int:
        """Keep a text outside the code's roots; return its length."""
        if os.path.basename(name) != name:
            raise ValueError(f"{name!r} is not the name of a file")
        (self.base / "kept").mkdir(exist_ok=True)
        return (self.base / "kept" / name).write_text(text)

    def fetch(self, path: str) -> str:
        """Ask the server of the host, which the code does not reach."""
        with urllib.request.urlopen(self.address + path) as reply:
            return str(reply.read().decode())

    async def ask_expert(self, question: str) -> str:
        """Ask somebody else."""
        return f"{question} yes"

    def on_ask(self, denied: AuditDenied) -> str:
        """Decide in the place of a person."""
        name = Path(denied.path or "").name
        self.asked.append(name)
        if name in self.seen:
            return "deny"
        self.seen.add(name)
        return {"once.txt": "once", "log.txt": "guard", "mon.txt": "pattern"}.get(name, "deny")

    def told(self, number: int, result: Result) -> str:
        """The line that the model is told of a step."""
        parts = [f"{number:2}"]
        if result.error is not None:
            is_denial = result.error.kind == "fastaudit_rs.AuditDenied"
            parts.append("denied" if is_denial else str(result.error).splitlines()[0])
        if result.killed_by is not None:
            parts.append(f"ended by {result.killed_by}")
        if result.stdout:
            parts.append(f"printed {result.stdout!r}")
        if result.value is not None:
            shape = getattr(result.value, "shape", None)
            parts.append(f"value {result.value!r}" if shape is None else f"a frame of {shape}")
        parts += [f"shown {', '.join(sorted(shown))}" for shown in result.display]
        parts += [f"violation: {denied.effect} {denied.path}" for denied in result.violations]
        parts += [f"asked about {name}" for name in self.asked]
        self.asked.clear()
        return "; ".join(parts).replace(str(self.base), "~")


def loop(session: Session, host: Host) -> Iterator[str]:
    """Run the steps; the line of each."""
    for number, code in enumerate(STEPS, 1):
        variables: dict[str, object] = {"shared": str(host.shared)} if number == 1 else {}
        if "measured" in code:
            variables["measured"] = numpy.array([[1.0, 2.0], [3.0, 6.0]])
        if code.startswith("while True"):
            threading.Timer(0.5, session.interrupt).start()
        yield host.told(number, session.run(code, variables=variables))
        if "broken" in code:
            session.undo()
            yield "   undone"


@contextmanager
def session_of(place: str, host: Host) -> Iterator[Session]:
    """A session in this process (`here`) or in a sandbox."""
    policy = Policy.preset("workspace")
    tools: dict[str, Callable[..., object]] = {
        "save": host.save,
        "fetch": host.fetch,
        "ask_expert": host.ask_expert,
    }
    if place == "here":
        work = host.base / "work"
        work.mkdir()
        with policy.session(directory=work, tools=tools, on_ask=host.on_ask) as session:
            yield session
        return
    # The kernel holds what may be asked for, the guard in the sandbox asks.
    most = policy.replace(write=[".", host.shared])
    limits = Limits(wall_seconds=60)
    with (
        Sandbox(policy, limits, approvable=most) as sandbox,
        sandbox.session(tools=tools, on_ask=host.on_ask) as session,
    ):
        yield session


class Rates(http.server.BaseHTTPRequestHandler):
    """A server of the host's."""

    def do_GET(self) -> None:
        """Answer each request."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"0.94")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def main(place: str) -> None:
    """Run the loop in a place, and print its lines."""
    with (
        tempfile.TemporaryDirectory() as base,
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Rates) as server,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = Host(Path(base).resolve(), f"http://127.0.0.1:{server.server_port}")
        (host.shared / "reports").mkdir(parents=True)
        with session_of(place, host) as session:
            for line in loop(session, host):
                print(line)
        for kept in sorted(host.base.rglob("*.txt")):
            print("kept", kept.relative_to(host.base))
        server.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
