"""Counts the native calls of a workload: `python native_calls_counter.py WORKLOAD DIRECTORY`.

Prints `{callee: number}` as JSON. `FASTAUDIT_RS_CALLS` says how calls are watched.
"""

import json
import sys
from collections import Counter

import native_workloads

from fastaudit_rs import mk_audit


def main():
    name, base = sys.argv[1:]
    sys.path.insert(0, base)
    workload, calls = getattr(native_workloads, name), Counter()
    # Late imports are made now.
    expected = [workload(base) for _ in range(2)][-1]

    def on_call(caller, callee, *rest):
        calls[callee] += 1
        return False

    with mk_audit(["/"], lambda *_: True, on_call)():
        assert workload(base) == expected
    print(json.dumps(calls))


if __name__ == "__main__":
    main()
