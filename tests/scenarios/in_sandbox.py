"""Runs the code of a scenario in a sandbox: what it says of itself is the value of this program."""

import json
import os
import sys

import prepared


class Socket:
    """A socket of the host's: where it is bound, and the number of its descriptor there."""

    def __init__(self, descriptor, address):
        self.descriptor = descriptor
        self.address = tuple(address) if isinstance(address, list) else address

    def getsockname(self):
        return self.address

    def sendall(self, data):
        os.write(self.descriptor, data)


class Process:
    """A process that the host started."""

    def __init__(self, pid):
        self.pid = pid


KINDS = {"path": str, "descriptor": int, "socket": lambda told: Socket(*told), "process": Process}


def attempt(code, names):
    """The exception that running it raises."""
    try:
        exec(code, names)
    except BaseException as error:
        return f"{type(error).__name__}: {error}".split("\n")[0]
    return None


scenario = json.loads(sys.argv[1])
names = vars(prepared)
for name, told in scenario["hosts"].items():
    [(kind, value)] = told.items()
    names[name] = KINDS[kind](value)
raised = attempt(scenario["code"], names)
after = attempt(scenario.get("after", ""), names) if scenario["kind"] == "stop" else None
happened = bool(names.get("happened", names["DONE"]))
{"raised": raised, "after": after, "happened": happened, "before": names["FAILED"]}
