"""What a guard costs, beside the original, in one run.

Each case runs in a process of its own for each implementation, in turns, several times; the table
shows the least time, net of the same operation without any of them, and the ratio.
"""

import json
import os
import subprocess
import sys
import tempfile
import timeit

ROUNDS = 7
IMPLEMENTATIONS = ["none", "fastaudit", "fastaudit_rs"]


def denied_remove(path):
    """Remove a file that may not be removed, or is not there."""
    try:  # noqa: SIM105 - a context manager would be measured too
        os.remove(path)
    except OSError:
        pass


def cases(audit_perms, ok, out):
    """Name, whether it runs under the guard, how often, and what it does."""
    deep = os.path.join(ok, "a/b/c/d/e")
    os.makedirs(deep, exist_ok=True)
    file = os.path.join(deep, "file")
    open(file, "w").close()

    def enter():
        with audit_perms():
            pass

    return [
        ("an event, no guard in force", False, 200_000, lambda: sys.audit("os.listdir", "x")),
        ("an ignored event under a guard", True, 200_000, lambda: sys.audit("os.listdir", "x")),
        ("open for reading", True, 20_000, lambda: os.close(os.open(file, os.O_RDONLY))),
        ("open for writing, five levels down", True, 5_000, lambda: os.close(os.open(file, 1))),
        ("a denied os.remove, caught", True, 5_000, lambda: denied_remove(out + "/file")),
        ("enter and leave, without monitoring", False, 20_000, enter),
    ]


def measure(implementation, ok, out):
    """Nanoseconds for each case, the least of a few repeats."""
    if implementation == "none":
        from contextlib import nullcontext as audit_perms
    else:
        module = __import__(implementation)
        audit_perms = module.mk_audit([ok], monitor_calls=False)
    results = {}
    for name, guarded, number, function in cases(audit_perms, ok, out):
        if guarded:
            with audit_perms():
                times = timeit.repeat(function, number=number, repeat=3)
        else:
            times = timeit.repeat(function, number=number, repeat=3)
        results[name] = min(times) / number * 1e9
    return results


def main():
    """Run all implementations in turns and print the table."""
    best = {implementation: {} for implementation in IMPLEMENTATIONS}
    with tempfile.TemporaryDirectory() as base:
        ok, out = os.path.join(base, "ok"), os.path.join(base, "out")
        os.mkdir(ok)
        os.mkdir(out)
        for _ in range(ROUNDS):
            for implementation in IMPLEMENTATIONS:
                command = [sys.executable, __file__, implementation, ok, out]
                output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                for name, time in json.loads(output).items():
                    known = best[implementation].get(name, time)
                    best[implementation][name] = min(known, time)
    print(f"Python {sys.version.split()[0]}; ns, net of the bare operation; least of {ROUNDS} runs")
    print(f"{'case':38} {'bare':>8} {'fastaudit':>10} {'fastaudit_rs':>13} {'ratio':>7}")
    for name, bare in best["none"].items():
        original, ours = (best[each][name] - bare for each in IMPLEMENTATIONS[1:])
        ratio = f"{ours / original:7.3f}" if original > 0 else f"{'-':>7}"
        print(f"{name:38} {bare:8.0f} {original:10.0f} {ours:13.0f} {ratio}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(*sys.argv[1:])))
    else:
        main()
