"""Work at random for some seconds, with faults, and see that every answer is right.

    soak.py SECONDS [SEED]

Guards, sessions and sandboxes do what has a known answer while signals arrive, disks are full,
descriptors run out and processes are killed. It fails on a wrong answer, or where descriptors,
children, threads or directories are left at the end.
"""

import contextlib
import gc
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fastaudit_rs import AuditDenied, Limits, Policy, Sandbox, SandboxError

Operation = Callable[["Soak"], None]

#: What a start may raise where the system has no room for it.
NO_ROOM = (SandboxError, OSError)
OPERATIONS: list[Operation] = []


def operation(function: Operation) -> Operation:
    """Note an operation: it raises where something is wrong."""
    OPERATIONS.append(function)
    return function


class Soak:
    """The places of a run, and what it keeps open."""

    def __init__(self, base: Path) -> None:
        """Make the directories, and what later operations go on with."""
        self.inside, self.outside = base / "inside", base / "outside"
        self.inside.mkdir()
        self.outside.mkdir()
        self.policy = Policy(write=[str(self.inside)], network=False)
        self.numbers = 0

    def number(self) -> int:
        """Return a number that no operation had."""
        self.numbers += 1
        return self.numbers

    def writes(self) -> tuple[Path, Path, str]:
        """Two files, and code that writes the first one and then the second one."""
        allowed, denied = (place / f"{self.number()}" for place in (self.inside, self.outside))
        code = f"open({str(allowed)!r}, 'w').close()\nopen({str(denied)!r}, 'w').close()"
        return allowed, denied, code


def check(is_right: object, *told: object) -> None:
    """Raise an error that tells more, unless it is right."""
    if not is_right:
        raise AssertionError(*told)


@operation
def guard(soak: Soak) -> None:
    """A guard lets the one file be written, and not the other."""
    allowed, denied, code = soak.writes()
    try:
        with soak.policy.guard()():
            exec(code)
    except AuditDenied as error:
        check(error.path == str(denied), error)
    else:
        raise AssertionError("nothing was denied")
    check(allowed.exists() and not denied.exists(), allowed, denied)
    allowed.unlink()


@operation
def guards_in_threads(soak: Soak) -> None:
    """The same in four threads."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            guard(soak)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(not failed, failed)


@operation
def session_here(soak: Soak) -> None:
    """Steps in this process share names, and are guarded."""
    _, denied, code = soak.writes()
    with soak.policy.session() as session:
        session.run("x = 20")
        check(session.run("x + 22").value == 42, "a value")
        ran = session.run(code)
        check(len(ran.violations) == 1 and not denied.exists(), ran)
        check(session.run("raise ValueError(1)").error.kind == "ValueError", "an error")


@operation
def sandbox(soak: Soak) -> None:
    """A run writes where it may."""
    allowed, denied, code = soak.writes()
    with Sandbox(soak.policy, Limits(wall_seconds=60)) as box:
        ran = box.run(code)
        check(allowed.exists() and not denied.exists() and not ran.success, ran)
        ran = box.run("6 * 7")
        check(ran.success, ran)


@operation
def sandbox_session(soak: Soak) -> None:
    """Steps in a sandbox share names until their process is killed."""
    with Sandbox(soak.policy).session() as session:
        session.run("x = 41")
        check(session.run("x + 1").value == 42, "a value")
        ran = session.run("import os\nos.kill(os.getpid(), 9)")
        check(not ran.success, ran)
        check(session.run("1 + 1").value == 2, "a step after that")


@operation
def time_limit(soak: Soak) -> None:
    """A run that takes too long is ended."""
    with Sandbox(soak.policy, Limits(wall_seconds=0.5)) as box:
        ran = box.run("while True: pass")
        check(ran.killed_by == "wall_seconds", ran)


@operation
def interrupt(soak: Soak) -> None:
    """A step that is interrupted ends, and the next one goes on."""
    with Sandbox(soak.policy).session() as session:
        session.run("1")
        timer = threading.Timer(0.2, session.interrupt)
        timer.start()
        ran = session.run("import time\ntime.sleep(30)", timeout=60)
        timer.join()
        check(ran.killed_by == "interrupt", ran)
        check(session.run("2").value == 2, "a step after that")


@operation
def killed_from_outside(soak: Soak) -> None:
    """A run whose processes are killed says so."""
    with Sandbox(soak.policy, Limits(wall_seconds=60)) as box:
        box.run("1")

        def kill() -> None:
            for pid in children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

        timer = threading.Timer(0.3, kill)
        timer.start()
        with contextlib.suppress(SandboxError):
            check(not box.run("import time\ntime.sleep(30)").success, "it went on")
        timer.join()


@operation
def among_signals(soak: Soak) -> None:
    """A sandbox starts while a signal arrives each millisecond."""
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        sandbox(soak)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@operation
def few_descriptors(soak: Soak) -> None:
    """A start without descriptors fails in words, or works."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = max(descriptors()) + 1 + random.randrange(40)
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, limits[1]))
    try:
        with contextlib.suppress(*NO_ROOM):
            with Sandbox(soak.policy) as box:
                check(box.run("42").success, "a run")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@operation
def full_disk(soak: Soak) -> None:
    """A start where no file can be written fails, or works."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with contextlib.suppress(*NO_ROOM):
            with Sandbox(soak.policy) as box:
                box.run("42")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


def descriptors() -> set[int]:
    """The descriptors of this process."""
    return {int(name) for name in os.listdir("/proc/self/fd")}


def children() -> list[int]:
    """The children of this process, dead ones too."""
    found = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            found += Path(f"/proc/self/task/{task}/children").read_text().split()
    return [int(pid) for pid in found]


def left(base: Path) -> dict[str, Any]:
    """What a process keeps: numbers of descriptors, children, threads, directories."""
    gc.collect()
    temporary = Path(tempfile.gettempdir())
    return {
        "descriptors": len(descriptors()) - 1,
        "children": len(children()),
        "threads": threading.active_count(),
        "directories": sum(1 for path in temporary.iterdir() if path != base),
    }


@contextlib.contextmanager
def own_temporary() -> Iterator[Path]:
    """Let all temporary directories be made in one that goes in the end."""
    with tempfile.TemporaryDirectory() as directory:
        tempfile.tempdir = os.environ["TMPDIR"] = directory
        base = Path(directory, "base")
        base.mkdir()
        yield base


def settled(base: Path, before: dict[str, Any]) -> dict[str, Any]:
    """What is left once threads and processes that are ending have ended."""
    until = time.monotonic() + 10
    while (now := left(base)) != before and time.monotonic() < until:
        time.sleep(0.1)
    return now


def main(seconds: float, seed: int) -> int:
    """Work for that time, and say how it went."""
    random.seed(seed)
    done: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    with own_temporary() as base:
        soak = Soak(base)
        for each in OPERATIONS:
            # What is kept for later is there before the count.
            each(soak)
        before = left(base)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            each = random.choice(OPERATIONS)
            done[each.__name__] += 1
            try:
                each(soak)
            except Exception as error:
                wrong[each.__name__] += 1
                print(f"{each.__name__}: {type(error).__name__}: {error}", flush=True)
        after = settled(base, before)
    print(f"\nseed {seed}, {seconds:g} s")
    for name in sorted(done):
        print(f"{name:20} {done[name]:6} times, {wrong[name]} wrong")
    for name, number in before.items():
        print(f"{name:20} {number:6} before, {after[name]} after")
    is_right = not wrong and after == before
    print("everything was right" if is_right else "FAILED")
    return not is_right


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1))
