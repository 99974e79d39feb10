"""Runs the lines of `tests/acts/packages.toml`, each in a process of its own, and tells what became
of them under a guard."""

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

import toml_tables

TABLE = Path(__file__).resolve().parent.parent / "acts" / "packages.toml"

KINDS = ("write", "connect", "start")

#: Seconds for one line under all guards.
TIMEOUT = 120

#: The addresses of this machine that the guard allows and denies.
INSIDE, OUTSIDE = "127.0.0.1", "127.0.0.2"


def cases():
    """The lines, each a dictionary with its kind and its name."""
    table = toml_tables.load(TABLE)["case"]
    for case in table:
        [case["kind"]] = [kind for kind in KINDS if kind in case]
        case["name"] = f"{case['package']}: {case['kind']} {case[case['kind']]}"
    return table


def run(case):
    """What became of a line: `missing`, or what was seen inside and outside, told and recorded."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            done = subprocess.run(
                [sys.executable, __file__, case["name"], directory],
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                cwd=directory,
            )
        except subprocess.TimeoutExpired:
            return {"error": f"ran for more than {TIMEOUT} seconds"}
    for line in done.stdout.splitlines():
        if line.startswith("SEEN "):
            return json.loads(line.removeprefix("SEEN "))
    return {"error": f"status {done.returncode}: {done.stderr[-500:]}"}


class Listener:
    """Sockets at all addresses of this machine that hear of connections, which they close, and of
    datagrams."""

    def __init__(self):
        self.count = 0
        self.stream = socket.socket()
        self.stream.bind(("", 0))
        self.stream.listen()
        self.port = self.stream.getsockname()[1]
        self.datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.datagrams.bind(("", self.port))
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        """Hear of everything that arrives."""
        while True:
            for one in select.select([self.stream, self.datagrams], [], [])[0]:
                one.accept()[0].close() if one is self.stream else one.recv(1)
                self.count += 1

    def heard(self):
        """Whether something arrived since the last time."""
        time.sleep(0.05)
        heard, self.count = self.count > 0, 0
        return heard


class Act:
    """A line that is run again and again, each time for another place."""

    def __init__(self, case, directory):
        self.case = case
        self.is_connection = case["kind"] == "connect"
        self.listener = Listener() if self.is_connection else None
        self.root, self.outside = (Path(directory, name) for name in ("root", "outside"))
        self.root.mkdir()
        self.outside.mkdir()
        os.chdir(self.root)
        self.names = {}
        exec(case["setup"], self.names)
        self.code = compile(case["code"], "<line>", "exec")

    def __call__(self, guard, name, is_inside=False):
        """Run it under a guard; whether it had its effect, its error if any, and the guard."""
        place = self.root if is_inside else self.outside
        given = {"path": str(place / name)}
        if self.is_connection:
            given = {"host": INSIDE if is_inside else OUTSIDE, "port": self.listener.port}
        error = None
        names = {**self.names, **given}
        try:
            with guard as entered:
                exec(self.code, names)
        except BaseException as raised:
            error = raised
        del names
        if self.is_connection:
            return self.listener.heard(), error, entered
        return any(made.startswith(name) for made in os.listdir(place)), error, entered


def policy(kind):
    """The policy that a kind of line is run under."""
    from fastaudit_rs import Network, Policy

    notebook = Policy.preset("notebook")
    if kind == "connect":
        return notebook.replace(network=Network(hosts=[INSIDE]))
    if kind == "start":
        return notebook.replace(write=["/"], commands=[])
    return notebook


def seen(case, directory):
    """Run a line under guards."""
    try:
        act = Act(case, directory)
    except ImportError as error:
        return {"missing": str(error)}
    rules = policy(case["kind"])
    is_start = case["kind"] == "start"
    answer = {}
    allowed = rules.replace(commands=["touch"]) if is_start else rules
    answer["inside"], error, guard = act(allowed.guard()(), "inside", True)
    answer["inside_error"] = repr(error)
    answer["inside_denials"] = [str(denial) for denial in guard.violations]
    answer["outside"], error, guard = act(rules.guard()(), "outside")
    answer["outside_error"] = repr(error)
    shown = "".join(traceback.format_exception(error)) if error else ""
    answer["shown"] = "To allow it: " in shown
    answer["told"] = [
        {"event": denial.event, "path": denial.path, "host": denial.host, "package": denial.package}
        for denial in guard.violations
        if denial.library
    ]
    effect, _, recording = act(rules.observe()(), "recorded")
    places = {effect.path or effect.host for effect in recording.effects}
    there = OUTSIDE if act.is_connection else str(act.outside)
    answer["recorded"] = effect and any(place and place.startswith(there) for place in places)
    answer["hint"] = False
    with contextlib.suppress(IndexError):
        for _ in range(4):
            rules = rules.replace(**_fields(guard.violations[-1].suggestion))
            answer["hint"], _, guard = act(rules.guard()(), "outside")
            if answer["hint"] and not guard.violations:
                break
    return answer


def _fields(suggestion):
    from fastaudit_rs import Network

    network = suggestion.get("network")
    return {**suggestion, **({"network": Network(**network)} if isinstance(network, dict) else {})}


if __name__ == "__main__":
    _, name, place = sys.argv
    [wanted] = [case for case in cases() if case["name"] == name]
    print("SEEN", json.dumps(seen(wanted, place)), flush=True)
    # What a package does as the process ends is its own.
    os._exit(0)
