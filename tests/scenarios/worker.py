"""Runs one scenario under one guard, in a process of its own, and says what it saw of it.

Started by `runner.py` with a JSON request as its argument; the report is a line on the descriptor
that the request names. What happened is judged from outside wherever that can be.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path

GUARDS = {
    "none": None,
    "fastaudit 0.1.0": "fastaudit",
    "fastaudit 0.2.10": "fastaudit",
    "ours": "fastaudit_rs",
    "ours, 0.2 rules": "fastaudit_rs.v02",
    "ours, a policy": "fastaudit_rs",
    "ours, a confined call": "fastaudit_rs",
}


def is_there(name):
    """Whether a module, or an attribute of one, is there."""
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
POLICIES = ("ours, a policy", "ours, a confined call")


def policy_of(guard, roots):
    """The policy of these kinds."""
    return importlib.import_module(GUARDS[guard]).Policy(write=roots, network=False)


def factory(guard, roots):
    """What makes the guards of a kind."""
    if guard == "none":
        return contextlib.nullcontext
    module = importlib.import_module(GUARDS[guard])
    monitor_calls = sys.version_info >= (3, 12)
    if guard in POLICIES:
        return policy_of(guard, roots).guard(monitor_calls=monitor_calls)
    return module.mk_audit(roots, monitor_calls=monitor_calls)


def run(request):
    scenario, places, kind = request["scenario"], request["places"], request["guard"]
    if tuple(scenario.get("python", (3, 10))) > sys.version_info[:2]:
        return {"skipped": "this Python"}
    if scenario.get("root") and os.geteuid() != 0:
        return {"skipped": "not root"}
    if not is_there(scenario.get("needs", "os")):
        return {"skipped": scenario["needs"]}
    roots = [root(text, places) for text in scenario.get("roots", ["OK"])]
    guard = None

    def make():
        # Made as late as it may be: what came before was not guarded.
        nonlocal guard
        guard = guard or factory(kind, roots)
        return guard()

    names = {"os": os, "Path": Path, "DONE": [], **places}
    names["guard"] = make
    names["looser"] = factory(kind, ["/"]) if "looser" in str(scenario) else None
    code = scenario["code"].replace("MODULE", GUARDS[kind] or "contextlib")
    exec(scenario.get("before", ""), names)
    make_one = make()
    raised = None
    try:
        if kind == "ours, a confined call":
            policy_of(kind, roots).call(exec, code, names)
        else:
            with make_one:
                exec(code, names)
    except BaseException as error:
        raised = f"{type(error).__name__}: {error}".split("\n")[0]
    report = {"raised": raised, "after": None}
    try:
        exec(scenario.get("after", ""), names)
    except BaseException as error:
        report["after"] = f"{type(error).__name__}: {error}".split("\n")[0]
    report["happened"] = bool(names.get("happened", names["DONE"]))
    return report


def main():
    request = json.loads(sys.argv[1])
    # What the scenario does to the standard streams, or to open files, is its own affair.
    report = os.dup(request["fd"])
    os.write(report, json.dumps(run(request)).encode())


if __name__ == "__main__":
    main()
