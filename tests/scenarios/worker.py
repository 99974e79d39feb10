"""Runs one scenario under one guard, in a process of its own, and says what it saw of it.

Started by `runner.py` with a JSON request as its argument; the report is a line on the descriptor
that the request names. The effects are judged from outside wherever that can be.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

GUARDS = {
    "none": None,
    "fastaudit 0.1.0": "fastaudit",
    "fastaudit 0.2.10": "fastaudit",
    "ours": "fastaudit_rs",
    "ours, 0.2 rules": "fastaudit_rs.v02",
    "ours, a policy": "fastaudit_rs",
    "ours, a confined call": "fastaudit_rs",
    "ours, a sandbox": "fastaudit_rs",
}

#: The kind that runs the code in a process of its own.
SANDBOX = "ours, a sandbox"

HERE = Path(__file__).parent


def is_there(name):
    """True if a module, or an attribute of one, is there."""
    module, _, attribute = name.rpartition(".")
    if importlib.util.find_spec(module or attribute) is None:
        return False
    return not module or hasattr(importlib.import_module(module), attribute)


def root(text, places):
    """A root: a place, what is below it, or an expression."""
    if "(" in text:
        return eval(text, {"Path": Path, **places})
    place, _, below = text.partition("/")
    return os.path.join(places[place], below) if below else places[place]


#: The kinds that are a policy.
POLICIES = ("ours, a policy", "ours, a confined call", SANDBOX)


def policy_of(guard, roots, fields=()):
    """The policy of these kinds, with what a scenario's own says."""
    module = importlib.import_module(GUARDS[guard])
    fields = dict(fields)
    if isinstance(fields.get("network"), dict):
        fields["network"] = module.Network(**fields["network"])
    return module.Policy(write=roots, network=False).replace(**fields)


def factory(guard, roots, fields=()):
    """A factory of guards of a kind."""
    if guard == "none":
        return contextlib.nullcontext
    module = importlib.import_module(GUARDS[guard])
    if guard in POLICIES:
        return policy_of(guard, roots, fields).guard()
    return module.mk_audit(roots)


def raised_by(act):
    """The exception that it raises, in a line; `None` if it raises none."""
    try:
        act()
    except BaseException as error:
        return f"{type(error).__name__}: {error}".split("\n")[0]
    return None


def run(request):
    scenario, places, kind = request["scenario"], request["places"], request["guard"]
    if tuple(scenario.get("python", (3, 10))) > sys.version_info[:2]:
        return {"skipped": "this Python"}
    if scenario.get("root") and os.geteuid() != 0:
        return {"skipped": "not root"}
    if not is_there(scenario.get("needs", "os")):
        return {"skipped": scenario["needs"]}
    roots = [root(text, places) for text in scenario.get("roots", ["OK"])]
    fields = scenario.get("policy", {})
    if kind == SANDBOX:
        return run_in_sandbox(scenario, places, policy_of(kind, roots, fields))
    guard = None

    def make():
        # Made as late as it may be: what came before was not guarded.
        nonlocal guard
        guard = guard or factory(kind, roots, fields)
        return guard()

    names = {"os": os, "Path": Path, "DONE": [], **places}
    names["guard"] = make
    names["looser"] = factory(kind, ["/"]) if "looser" in str(scenario) else None
    code = scenario["code"].replace("MODULE", GUARDS[kind] or "contextlib")
    exec(scenario.get("before", ""), names)
    make_one = make()

    def act():
        if kind == "ours, a confined call":
            policy_of(kind, roots, fields).call(exec, code, names)
        else:
            with make_one:
                exec(code, names)

    raised = raised_by(act)
    after = raised_by(lambda: exec(scenario.get("after", ""), names))
    happened = bool(names.get("happened", names["DONE"]))
    return {"raised": raised, "after": after, "happened": happened}


#: The code that comes before, in the process of a sandbox that is then copied for the code.
PREPARED = """
import os
from pathlib import Path
from fastaudit_rs import Policy
DONE, FAILED = [], None
guard = looser = Policy(write=None, network=True).guard(monitor_calls=False)
globals().update({!r})
try:
    exec({!r}, globals())
except BaseException as error:
    FAILED = repr(error)
"""


def hosts_own(name, value):
    """Return how another process can name a thing of the host's; `None` if it cannot."""
    if name == "DESCRIPTOR":
        return {"descriptor": value}
    if isinstance(value, str) and value.startswith("/"):
        return {"path": value}
    if isinstance(value, socket.socket):
        return {"socket": [value.fileno(), value.getsockname()]}
    return {"process": value.pid} if isinstance(value, subprocess.Popen) else None


def run_in_sandbox(scenario, places, policy):
    """Run the code in a process of its own.

    The code before and after it runs in the host, for its effects on the places, and in the sandbox
    for the names that the code uses: before its policy is installed there, and under it. Names of
    things of the host's are those, as far as code in another process can name them.
    """
    if "not_in_a_sandbox" in scenario:
        return {"skipped": scenario["not_in_a_sandbox"]}
    sandboxes = importlib.import_module("fastaudit_rs")
    # The places are the host's, as under a guard.
    policies = importlib.import_module("fastaudit_rs.sandbox.host.policies")
    policy = policies.absolute(policy, os.getcwd())
    if policy.read is None:
        policy = policy.replace(read=["/"])
    names = {"os": os, "Path": Path, "DONE": [], **places, "guard": contextlib.nullcontext}
    names["looser"] = contextlib.nullcontext
    exec(scenario.get("before", ""), names)
    tempfile.tempdir = places["TMP"]
    code = scenario["code"].replace("MODULE", "fastaudit_rs")
    limits = sandboxes.Limits(wall_seconds=10, memory="4G")
    hosts = {name: hosts_own(name, value) for name, value in names.items()}
    hosts = {name: value for name, value in hosts.items() if value is not None}
    request = json.dumps({**scenario, "code": code, "hosts": hosts})
    with contextlib.ExitStack() as stack:
        path = stack.enter_context(tempfile.TemporaryDirectory())
        Path(path, "prepared.py").write_text(PREPARED.format(places, scenario.get("before", "")))
        sandbox = stack.enter_context(sandboxes.Sandbox(policy, limits, path=[path]))
        pool = stack.enter_context(sandbox.pool(1, ["prepared"]))
        ran = pool.run(HERE / "in_sandbox.py", [request], value=True)
    ended = f"it ended with {ran.returncode}: {ran.stderr}"
    report = {"raised": ended, "after": None, "happened": False, **(ran.value or {})}
    after = scenario.get("after", "") if scenario["kind"] == "allow" or "before" in scenario else ""
    failed = raised_by(lambda: exec(after, names))
    # An object that only the code would have made may be missing here.
    if failed and scenario["kind"] == "allow":
        report["after"] = failed
    report["happened"] = bool(report["happened"] or names.get("happened", names["DONE"]))
    return report


def main():
    request = json.loads(sys.argv[1])
    # The scenario's changes of the standard streams, or of open files, are its own affair.
    report = os.dup(request["fd"])
    os.write(report, json.dumps(run(request)).encode())
    if request["guard"] == SANDBOX:
        # Threads that only the code would have ended are the host's here.
        os._exit(0)


if __name__ == "__main__":
    main()
