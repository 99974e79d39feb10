"""A worker that the host starts, with the part that the kernel holds and what it needs to begin."""

import contextlib
import errno
import functools
import os
import pickle
import resource
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import _landlock
from ..._native import _hold_sockets, _listeners
from ...sessions.errors import SandboxError
from ..limits import Limits
from ..wire import KernelPart, receive, send
from . import copies, older
from .causes import causes, counts_processes, descriptors, tasks
from .counts import Counts
from .egress.unaddressed import Unaddressed
from .metadata import Metadata, answering
from .runner import SandboxConfig
from .worker import Ended, Worker, wait_no_longer

if TYPE_CHECKING:
    from .egress.connects import Connects

#: The program of the process. It connects before it imports anything large: the host puts it into
#: a control group meanwhile, which takes the kernel some 10 ms. `wire.receive` reads its number.
START = """
import _signal, _socket, os, sys
_signal.pthread_sigmask(_signal.SIG_SETMASK, ())
control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
control.connect(sys.argv[1])
number = b"%d" % os.getpid()
control.sendall(len(number).to_bytes(8, "big") + number)
from fastaudit_rs.sandbox.inside.worker import main
main(control)
"""
COMMAND = (sys.executable, "-IB", "-c", START)

#: The greatest length of the path of a Unix socket, in bytes: unix(7).
LONGEST = 100

#: The times of its memory that a sandbox may reserve: libraries reserve more than they use.
RESERVED = 4

#: The time in which it ends what descends from it, in seconds.
ENDING = 5.0

#: The bytes of its last words that are reported if it fails to start.
SAID = 4096


@contextlib.contextmanager
def names_descriptors() -> Iterator[None]:
    """Say what to do where no file can be opened any more."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        why = "the system has as many files open as it may (fs.file-max)"
        if error.errno == errno.EMFILE:
            # Some are closed by now.
            why = descriptors() or "this process has too many open: raise the limit (ulimit -n)"
        raise SandboxError(f"no file can be opened any more: {why}") from error


class _Plain:
    """A process without the kernel part, with the interface of `sandlock`'s."""

    def __init__(self, command: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
        self._process = process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.stdin, self.stdout, self.stderr = process.stdin, process.stdout, process.stderr

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self) -> Ended:
        status = self._process.wait()
        # The processes that it started in its session end with it.
        self.kill()
        return Ended(max(status, 0), -status if status < 0 else -1, was_killed=status == -9)


class Confinement(NamedTuple):
    """What the kernel is to hold, as `sandlock` takes it, and what the host does in its place."""

    options: Mapping[str, Any]
    metadata: Metadata
    #: True if it uses no network: it gets an empty one, where the system lets it.
    is_alone: bool
    connects: "Connects | None"
    unaddressed: Unaddressed | None
    signals: older.Signals | None
    #: Counts the processes of its copies, if it is copied.
    counts: Counts | None


@dataclass
class _Confined:
    """A process of `sandlock`, with the usual interface.

    It starts as it is waited for: the thread that waits does some of its system calls in its place,
    and is in its network. It has no privileges, like the process.
    """

    _sandbox: Any
    _command: Sequence[str]
    _confinement: Confinement
    #: Known once it has connected.
    pid: int | None = None
    said: str = ""
    stdin = stdout = stderr = None

    def begin(self, pid: int) -> None:
        """Know its number."""
        self.pid = pid
        if self._confinement.signals is not None:
            self._confinement.signals.first = pid

    def kill(self) -> None:
        # It leads a group of its own; until it has connected, its group is not known.
        with contextlib.suppress(ProcessLookupError):
            if self.pid is not None and os.getpgid(self.pid) == self.pid:
                os.killpg(self.pid, signal.SIGKILL)

    def wait(self) -> Ended:
        options, metadata, is_alone, *others = self._confinement
        asked = [
            (name, answering(functools.partial(one.answer, name)))
            for one in (metadata, *others)
            if one is not None
            for name in one.calls
        ]
        sandbox, self._sandbox = self._sandbox, None
        # Binding a socket is such a call, to a path that no rule of the process itself applies to.
        _hold_sockets(metadata.roots, options["cwd"], is_alone)
        _without_privileges(sandbox)
        ended = sandbox.run_with_handlers(self._command, asked)
        self.pid = None
        self.said = ended.error or ended.stderr[-SAID:].decode(errors="replace")
        # One that did not start has none.
        was_killed = getattr(ended.reason, "name", None) == "KILLED"
        return Ended(max(ended.exit_code, 0), ended.signal, was_killed)


def _without_privileges(sandbox: Any) -> None:
    """Leave out the places that are closed to a thread without privileges."""
    for name in ("fs_readable", "fs_writable"):
        setattr(sandbox, name, [path for path in getattr(sandbox, name) if os.path.exists(path)])
    for path in (sys.executable, os.__file__, __file__):
        if not os.access(path, os.R_OK):
            raise SandboxError(
                f"its user cannot read {path} without privileges: give them the rights to it"
                " and to the directories above it, or install it elsewhere"
            )


class StartedWorker(Worker):
    """A process with a policy and imports of its own.

    Its task is the preparation of the process: a policy, directories and names of modules, pickled.
    """

    def __init__(self, config: SandboxConfig, confinement: Confinement, task: bytes) -> None:
        super().__init__(config.limits, is_confined=config.kernel is not None)
        self._connects = confinement.connects
        self._counts = confinement.counts
        self._kernel = config.kernel
        self.ended: Ended | None = None
        self._is_prepared = False
        self._streams: list[Any] = []
        #: The descriptors by which the kernel asks; some of other workers may be among them.
        self._listeners: set[int] = set()
        others = _listeners()
        over, self._over = os.pipe()
        copies.note(self)
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, over)
            # Where it starts, its thread closes this.
            unstarted = stack.enter_context(contextlib.ExitStack())
            unstarted.callback(self._tell_over)
            place = stack.enter_context(tempfile.TemporaryDirectory(dir=_short(config.base)))
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(f"{place}/control")
            listener.listen(1)
            self._process: Any = self._start(confinement, f"{place}/control")
            streams = (self._process.stdin, self._process.stdout, self._process.stderr)
            self._streams += [stream for stream in streams if stream is not None]
            self._waiter = threading.Thread(
                target=self._wait, name="fastaudit_rs process", daemon=True
            )
            self._waiter.start()
            unstarted.pop_all()
            try:
                self.control = self._accepted(listener, over)
                self._listeners = {*_listeners()}.difference(others)
                self._prepare(task)
            except BaseException:
                # A process that has not connected yet ends because it cannot.
                listener.close()
                self.end()
                raise

    def _start(self, confinement: Confinement, address: str) -> Any:
        command, options = [*COMMAND, address], confinement.options
        if self._kernel is None:
            return _Plain(command, options["cwd"], options["env"])
        try:
            writable = [*options["fs_writable"], address]
            # `sandlock` numbers them by the process: hosts elsewhere may have the same one.
            name = f"fastaudit-{secrets.token_hex(12)}"
            sandbox = self._kernel.Sandbox(**{**options, "fs_writable": writable, "name": name})
            return _Confined(sandbox, command, confinement)
        except (self._kernel.SandlockError, RuntimeError, ValueError) as error:
            raise SandboxError(f"this system cannot confine a sandbox: {error}") from error

    def _wait(self) -> None:
        # A signal would interrupt `sandlock` as it starts the process, which unblocks them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self.ended = self._process.wait()
        except Exception as error:
            self._process.said = str(error)
            self.ended = Ended(1, -1, was_killed=False)
        self._tell_over()

    def _tell_over(self) -> None:
        """Close the pipe that tells of its end, once."""
        over, self._over = self._over, -1
        if over >= 0:
            os.close(over)

    def begin_anew(self) -> None:
        self.ended = Ended(0, -1, was_killed=False)
        self._process = self._connects = None
        self._tell_over()
        super().begin_anew()
        for stream in self._streams:
            stream.close()
        # The calls of the processes would wait for the copy when the original has ended.
        for listener in self._listeners.intersection(_listeners()):
            os.close(listener)

    def _accepted(self, listener: socket.socket, over: int) -> socket.socket:
        """Its connection: the first one is of the process that was just started."""
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        poll.register(over, select.POLLIN)
        if listener.fileno() not in [descriptor for descriptor, _ in poll.poll()]:
            self._waiter.join()
            raise SandboxError(f"the process of the sandbox did not start: {self._why()}")
        control = listener.accept()[0]
        self._streams.append(control)
        return control

    def _said(self) -> str:
        if self._process.stderr is None:
            return str(self._process.said)
        os.set_blocking(self._process.stderr.fileno(), False)
        said: bytes = (self._process.stderr.read() or b"")[-SAID:]
        return said.decode(errors="replace")

    def _why(self) -> str:
        said = self._said().strip() or f"it ended {self.ended}"
        return "; ".join([said, *causes(is_confined=self.is_confined)])

    def _prepare(self, task: bytes) -> None:
        try:
            pid = int(receive(self.control)[0])
            # The socket names `sandlock`, in this process, as the one that connected for it.
            self.pid = pid
            if isinstance(self._process, _Confined):
                self._process.begin(pid)
            held = self._held(pid)
            send(self.control, task)
            send(self.control, pickle.dumps(held))
            said = receive(self.control)[0].decode(errors="replace")
        except (EOFError, OSError) as error:
            self._kill_group()
            self._waiter.join()
            raise SandboxError(
                f"the process of the sandbox did not start: {self._why()}"
            ) from error
        # Its standard streams lead nowhere by now.
        for stream in self._streams[:-1]:
            stream.close()
        if said:
            raise SandboxError(f"the process of the sandbox cannot be prepared:{said}")
        self._is_prepared = True
        wait_no_longer(self.control)

    def _held(self, pid: int) -> KernelPart:
        """Put the process into a control group; return what it is to put on itself."""
        limits, is_confined = self.limits, self.is_confined
        # Each copy is in a group of its own, which counts its memory.
        held = {"memory"} if self._counts is not None else self._join(pid)
        counted = limits.memory is None or "memory" in held
        own = _rlimits(limits, is_counted=counted, others=not is_confined)
        if self._counts is not None:
            self._counts.first = pid
        own_network = older.has_own_network(pid)
        return KernelPart(is_confined, counted, own, _landlock.version(), own_network)

    @property
    def is_alive(self) -> bool:
        return self._waiter.is_alive()

    def kill(self) -> None:
        # It ends all that descends from it, and itself, as when its host is gone: some of that is
        # in other groups of processes.
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)

    def _kill_group(self) -> None:
        process = self._process
        if process is not None:
            try:
                process.kill()
            except PermissionError:
                # A guard denies it, where garbage is collected under one.
                self.kill()

    def end(self, patience: float = 0, *, is_idle: bool = False) -> Ended:
        self._waiter.join(patience)
        if self._is_prepared and not is_idle:
            self.kill()
            self._waiter.join(ENDING)
        self._kill_group()
        self._waiter.join()
        # The thread that waited may have no privileges.
        if self._group is not None:
            self._group.close()
        # The objects of `sandlock` are freed now. An error may hold them until it is forgotten,
        # perhaps under a guard, which would deny the native call.
        self._process = None
        if self._connects is not None:
            self._connects.end()
        for stream in self._streams:
            stream.close()
        ended = self.ended
        assert ended is not None
        return ended


def _rlimits(limits: Limits, *, is_counted: bool, others: bool) -> dict[int, int]:
    """The limits of each process (setrlimit(2)) by their numbers, where nothing else holds them.

    Where the memory that is used is counted, more may be reserved.
    """
    found = {}
    if limits.memory is not None:
        found[resource.RLIMIT_DATA] = int(limits.memory) * (RESERVED if is_counted else 1)
    if not others:
        return found
    if limits.open_files is not None:
        found[resource.RLIMIT_NOFILE] = limits.open_files
    if limits.processes is not None and counts_processes():
        # The kernel counts all of the user's, and one more waits for work.
        found[resource.RLIMIT_NPROC] = tasks() + limits.processes + 1
    return found


def fill_standard() -> None:
    """Open the standard streams that are closed: descriptors of ours would get their numbers.

    They stay open in the process of a sandbox, for the same reason.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _short(base: str) -> str:
    """A directory for a socket: the one given, unless its name is too long for that."""
    longest = LONGEST - len("/tmpxxxxxxxx/control")
    return base if len(os.fsencode(base)) <= longest else "/tmp"
