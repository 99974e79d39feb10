"""The process of a sandbox that waits for work: each run is a child of it, used once.

Started by `host/process.py`, confined by the kernel already. It runs none of the code itself:
the children have its imports, and install their policy themselves. One child waits for the next
run. A process that is copied waits for no work itself: its copies do, one for each session.
"""

import _pickle as pickle
import _socket
import contextlib
import gc
import importlib
import mmap
import os
import resource
import select
import signal
import sys
import traceback
from collections.abc import Iterable
from typing import NoReturn

from ... import Policy
from ..._native import _Child, _Children, _govern
from ..wire import COMMON, Job, KernelPart, receive, send
from .child import run

#: The time for processes that a run leaves behind to end by themselves, in seconds.
PATIENCE = 0.05

#: The descriptors of a run: standard input, output and error, its report, the connection for its
#: questions, if it asks, and its log, if it has one.
DESCRIPTORS = 6

#: A child that waits and is killed, as for memory, is followed by another, so many times.
TRIES = 3

#: What a child tells of the job that it has got.
RUN, SESSION = b"r", b"s"


def main(control: _socket.socket) -> NoReturn:
    """Prepare, and run what the host sends until it is gone."""
    children = _Children()
    null = os.open(os.devnull, os.O_RDWR)
    # The standard streams were pipes when their objects were made, as they are in each child.
    for number in range(3):
        os.dup2(null, number)
    os.close(null)
    task, held = receive(control)[0], receive(control)[0]
    try:
        policy, most, path, preload, governing, is_copied = pickle.loads(task)
        for file in governing:
            _govern(file)
        _hold(children, policy, pickle.loads(held))
        sys.path[:0] = path
        is_same = most is policy
        policy = _prepared(children, policy, preload)
        if most is not None:
            most = policy if is_same else children.resolved(most)
        # Modules that a run writes there are not for this process to import.
        del sys.path[: len(path)]
    except BaseException as error:
        is_told = isinstance(error, _CannotImport)
        told = f" {error}" if is_told else f"\n{traceback.format_exc()}"
        send(control, told.encode(errors="replace"))
        sys.exit(1)
    send(control, b"")
    if is_copied:
        children, control = _copied(children, control)
    runs = 0
    while True:
        child, is_session = _next(children, control, policy, most, is_ahead=not is_copied)
        if is_session:
            _attend(children, control, child)
            continue
        status = children.status(child, control.fileno())
        send(control, b"ended %d %d" % (status, children.end(PATIENCE)))
        runs += 1
        if runs == 1:
            _import(COMMON)


def _copied(children: _Children, control: _socket.socket) -> tuple[_Children, _socket.socket]:
    """Make copies of this process as the host says, until it is gone; return in each of them.

    It says ``copy``, with the connection of the new one, or ``end PROCESS``. What is left of one
    that has ended is a child of this process then, and ends too.
    """
    own, kept, ends = os.getpid(), list[int](), {signal.SIGCHLD}
    signal.signal(signal.SIGCHLD, lambda *_: children.end(0, kept))
    while True:
        try:
            message, descriptors = receive(control, 1)
        except (EOFError, OSError):
            children.end(0)
            os._exit(0)
        word, *numbers = message.split()
        if word == b"end":
            kept.remove(int(numbers[0]))
            send(control, b"%d" % children.end(0, kept))
            continue
        # One that is new is not left behind.
        signal.pthread_sigmask(signal.SIG_BLOCK, ends)
        try:
            number = children.fork()
        except OSError:
            # The host reads that its connection is closed.
            number = -1
        if number == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ends)
            control.close()
            control = _socket.socket(fileno=descriptors[0])
            children = _Children(own)
            send(control, b"%d" % os.getpid())
            return children, control
        os.close(descriptors[0])
        if number > 0:
            kept.append(number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ends)


def _hold(children: _Children, policy: Policy, held: KernelPart) -> None:
    """Put limits and the kernel's part of a policy on this process and all that it starts."""
    for number, most in held.limits.items():
        _, greatest = resource.getrlimit(number)
        if greatest != resource.RLIM_INFINITY:
            most = min(most, greatest)
        resource.setrlimit(number, (most, most))
    if held.confined:
        children.confine(policy, held.memory_files, held.landlock, held.own_network)


def _prepared(children: _Children, policy: Policy, preload: list[str]) -> Policy:
    """Do the work that each run needs once, and return the policy for each."""
    _warm_up()
    _import(preload)
    # A place that leads elsewhere later has the host start another process.
    policy = children.resolved(policy)
    # Work for the first guard need not be repeated in each child.
    with policy.guard()():
        pass
    return policy


def _touch(policy: Policy) -> None:
    """Write to the memory that each run writes to: its pages are copied before there is a job."""
    with policy.guard()():
        eval(compile("None", "<touch>", "eval"), {})
    gc.collect()


class _CannotImport(Exception):
    """A module to import is not there, or one that it needs."""


def _import(names: Iterable[str]) -> None:
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise _CannotImport(f"it cannot import {name!r} (preload=): {error}") from error
    # Collecting would copy the pages that are shared with the children.
    gc.collect()
    gc.freeze()


def _warm_up() -> None:
    """Make the modules for errors import what they need."""
    try:
        raise ValueError
    except ValueError:
        traceback.print_exc()


def _attend(children: _Children, control: _socket.socket, child: int) -> None:
    """Do what the host says about the process of a session, until that is over.

    It says ``signal NUMBER``; ``signals``, to be told when all have been sent; or ``only
    PROCESS...``: all others end, and the first one is the session's from then on. Without one the
    session is over.
    """
    is_running = True
    while True:
        if is_running:
            try:
                status = children.status_or_word(child, control.fileno())
            except OSError:
                # It was none of the descendants.
                status = 1
            if status is not None:
                is_running = False
                send(control, b"ended %d" % status)
                continue
        try:
            word, *numbers = receive(control)[0].split()
        except (EOFError, OSError):
            children.end(0)
            os._exit(0)
        if word == b"signal":
            if is_running:
                with contextlib.suppress(OSError):
                    os.kill(child, int(numbers[0]))
            continue
        if word == b"signals":
            send(control, b"signals 1")
            continue
        kept = [int(number) for number in numbers]
        is_clean = children.end(0, kept)
        send(control, b"only %d" % is_clean)
        if not kept:
            return
        child, is_running = kept[0], True


def _next(
    children: _Children,
    control: _socket.socket,
    policy: Policy,
    most: Policy | None,
    *,
    is_ahead: bool,
) -> tuple[int, bool]:
    """Have a child wait for the next job; return it once it has it, and whether it is a session.

    Copying this process takes longer than many a job, and is done ahead where it may be: the host
    counts the processes of a copy once it has a job for it.
    """
    if not is_ahead:
        _until_asked(control)
    worker = os.getpid()
    # Shared with the child: true once it takes the job, which nobody else can take then.
    taken = mmap.mmap(-1, 1)
    for _ in range(TRIES):
        told, tells = os.pipe()
        # An interrupt of a session waits until its process can take it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        child = children.fork()
        if child == 0:
            try:
                os.close(told)
                inside = _Child(children)
                if is_ahead:
                    _touch(policy)
                _wait(inside, control, worker, policy, most, tells, taken)
            finally:
                os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        os.close(tells)
        kind = os.read(told, 1)
        os.close(told)
        if kind:
            return child, kind == SESSION
        _, status = os.waitpid(child, 0)
        if taken[0] or os.WIFEXITED(status):
            # The host is gone, or the job is lost. There could be no memory for the end of the
            # interpreter any more.
            os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1)
    os._exit(1)


def _until_asked(control: _socket.socket) -> None:
    """Wait until the host says something, or is gone."""
    watched = select.poll()
    watched.register(control, select.POLLIN)
    watched.poll()


def _wait(
    child: _Child,
    control: _socket.socket,
    worker: int,
    policy: Policy,
    most: Policy | None,
    tells: int,
    taken: mmap.mmap,
) -> NoReturn:
    """Wait for a job, and run it."""
    if os.getppid() != worker:
        os._exit(1)
    _until_asked(control)
    taken[0] = True
    try:
        told, descriptors = receive(control, DESCRIPTORS)
    except (EOFError, OSError):
        os._exit(0)
    control.close()
    taken.close()
    job: Job = pickle.loads(told)
    if not job.session:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.write(tells, SESSION if job.session else RUN)
    os.close(tells)
    run(child, policy, most, job, descriptors)
