"""Runs a workload with one of its native calls denied, again and again, each time another one.

Run as `python denial_injection_worker.py WORKLOAD DIRECTORY [FIRST]`. Prints `calls N`, then for
each call that is denied `deny I` before and the outcome after, so that a crash or a hang tells
which call it was, and `done` at the end. `FIRST` is the call to begin with. Outcomes:

- `denied`: our exception came out, or one that has it among its causes;
- `swallowed`: the workload went on without the call;
- `replaced E`: the library raised an `E` of its own in its place.
"""

import faulthandler
import gc
import importlib
import signal
import sys
import time

import native_workloads

MOST = 90


def end_by_a_signal(error):
    # A guard stops the ways to end a process that are calls.
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    time.sleep(10)


def go_on(error):
    while True:
        pass


def fail(error):
    raise SystemError("error return without exception set") from error


def after_a_denial(act):
    """A workload that shows that what it does once a call is denied is seen."""

    def workload(base):
        import orjson

        try:
            orjson.dumps(1)
        except PermissionError as error:
            act(error)

    return workload


crash, hang, system_error = map(after_a_denial, (end_by_a_signal, go_on, fail))


def chain(error):
    """An exception and all that led to it."""
    todo, seen = [error], []
    while todo:
        error = todo.pop()
        if error is not None and error not in seen:
            seen.append(error)
            todo += [error.__cause__, error.__context__]
    return seen


def is_ours(error):
    return isinstance(error, PermissionError) and "fastaudit.call blocked" in str(error)


def outcome(run):
    """The outcome of a run with a call denied."""
    try:
        run()
    except BaseException as error:
        errors = chain(error)
        if any(isinstance(each, SystemError) for each in errors):
            raise AssertionError("a SystemError") from error
        if not isinstance(error, Exception):
            raise
        denied = any(map(is_ours, errors))
        return "denied" if denied else f"replaced {type(error).__name__}"
    return "swallowed"


def chosen(count):
    """The calls to deny: the first ones, and others at even distances."""
    if count <= MOST:
        return list(range(count))
    rest = MOST // 3
    first = MOST - rest
    return [*range(first), *(first + (count - first) * i // rest for i in range(rest))]


def main():
    name, base, *first = sys.argv[1:]
    faulthandler.enable()
    from fastaudit_rs import mk_audit

    workload = globals().get(name) or getattr(native_workloads, name)
    unraisable = []
    sys.unraisablehook = lambda error: unraisable.append(error.exc_value)
    # Late imports are made now, so that each run makes the same calls.
    expected = [workload(base) for _ in range(3)][-1]
    count, denied = 0, -1

    def on_call(*args):
        nonlocal count
        count += 1
        return count - 1 == denied

    audit_perms = mk_audit([base], on_call=on_call)

    def guarded():
        nonlocal count
        count = 0
        with audit_perms():
            return workload(base)

    assert guarded() == expected
    print("calls", count, flush=True)
    for denied in chosen(count):
        if first and denied < int(first[0]):
            continue
        print("deny", denied, flush=True)
        print(outcome(guarded), flush=True)
        if denied % 10 == 0:
            gc.collect()
        assert not [error for error in unraisable if isinstance(error, SystemError)], unraisable
    denied = -1
    assert guarded() == expected
    assert workload(base) == expected
    gc.collect()
    print("done", flush=True)


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[2])
    importlib.invalidate_caches()
    main()
