"""The native core of fastaudit_rs. The package `fastaudit_rs` offers the documented names."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import Context
from inspect import Signature
from os import PathLike
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, ClassVar, Final, Literal, NoReturn, TypeAlias, TypeVar, final, overload

from typing_extensions import ParamSpec, Self, disjoint_base

from .approvals import Answer, Approvals
from .calls import TrackedCall
from .dask import GuardPlugin
from .denied import AuditDenied
from .sessions.arguments import Tools
from .sessions.base import Session

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Data = TypeVar("_Data")
_Result = TypeVar("_Result")
_Params = ParamSpec("_Params")
_Path: TypeAlias = str | bytes | PathLike[str] | PathLike[bytes]

_Calls: TypeAlias = tuple[TrackedCall, ...]

_BeforeDeny: TypeAlias = (
    Callable[[str, tuple[Any, ...], FrameType | None, str, Any], object]
    | Callable[[str, tuple[Any, ...], FrameType | None, str, Any, _Calls], object]
)
"""``before_deny(event, args, frame, msg, data)``: a true answer allows the event.

A callback that takes another argument, ``calls``, gets the tracked calls in progress."""

_OnCall: TypeAlias = (
    Callable[[str, str, Any, CodeType, int, Any], object]
    | Callable[[str, str, Any, CodeType, int, Any, _Calls], object]
)
"""``on_call(caller, callee, fn, code, off, data)``: ``False`` or ``sys.monitoring.DISABLE``
suppresses the call's event.

A callback that takes another argument, ``calls``, gets the tracked calls in progress."""

_OnDenied: TypeAlias = Callable[[AuditDenied], object]
"""``on_denied(denied)``: called with each denial before it is raised."""

_OnAsk: TypeAlias = Callable[[AuditDenied], object] | Callable[[AuditDenied], Awaitable[object]]
"""``on_ask(denied)``: called before an operation is denied, for an `Answer`."""

_OnViolation: TypeAlias = Callable[[AuditDenied], object]
"""``on_violation(violation)``: called with each violation, which then proceeds."""

__version__: Final[str]

def _raise_violations() -> None:
    """Make each denial in this process from now on a `SandboxViolation`."""

def installed_policy() -> Policy | None:
    """The policy that `Policy.install` turned on last; ``None`` without one."""

def mk_audit(
    oks: Iterable[_Path] | None,
    before_deny: _BeforeDeny | None = None,
    on_call: _OnCall | None = None,
    data: Any = None,
    tool_id: int = 3,
    monitor_calls: bool = True,
    *,
    calls: Literal["events", "callee"] | None = None,
    retire_sites: bool = False,
    on_denied: _OnDenied | None = None,
    on_ask: _OnAsk | None = None,
    ask_seconds: float | None = None,
    log: AuditLog | _Path | None = None,
    rules: Literal["0.1", "0.2"] = "0.1",
    packages: str | Iterable[str] = (),
) -> AuditPerms:
    """Make a guard factory for code that may write only below the approved roots.

    Args:
        oks: Approved roots, an iterable of ``str``, ``bytes`` or ``os.PathLike``. Each is expanded
            (``'~'``) and resolved now, links included; ``'.'`` stands for the current directory at
            the time of each check; ``'/'`` approves every path. No roots: nothing may be written. A
            root that does not exist warns, unless it looks like a file that will be made.
        before_deny: ``before_deny(event, args, frame, msg, data)``, called before an event is
            denied. A true answer allows it. ``frame`` is the innermost Python frame. Its exceptions
            go to the guarded code.
        on_call: ``on_call(caller, callee, fn, code, off, data)``, called before a native call
            raises ``fastaudit.call``. ``False`` suppresses the event;
            ``sys.monitoring.DISABLE`` does so for the call site. Needs ``monitor_calls``.
        data: Any object; handed to both callbacks.
        tool_id: The ``sys.monitoring`` tool id to watch calls with, 0 to 5; by default 3 or another
            free one (``AuditPerms.tool_id``).
        monitor_calls: True if calls of native code that is not in the standard library raise the
            audit event ``fastaudit.call``.
        calls: How calls are watched. With ``"events"`` the interpreter reports each call (PEP 669,
            Python 3.12 and newer), which slows code that calls much. With ``"callee"`` native code
            reports its own calls: other code runs at full speed, and calls by ``map``, ``sorted``
            and the like are seen too. Native functions that are made while code runs are seen if
            native code returned them. ``None`` is the value of the environment variable
            ``FASTAUDIT_RS_CALLS``; without one ``"events"``, and ``"callee"`` before Python 3.12.
        retire_sites: Stop watching a call site after its first harmless call, one of Python code or
            of the standard library. Code runs at nearly full speed, but native code called there
            later is not seen. Needs ``monitor_calls``, and ``calls="events"``. It has no effect on
            free-threaded builds.
        on_denied: ``on_denied(denied)``, called with the ``AuditDenied`` before it is raised. Its
            exceptions become the cause of the denial.
        on_ask: ``on_ask(denied)``, called with the ``AuditDenied`` before it is raised, and after
            ``before_deny``, for an answer: ``'once'`` (or ``True``) allows this operation,
            ``'guard'`` this subject for as long as the factory lives, ``'pattern'`` its directory,
            program, package or host with its port, and ``'deny'`` (``False``, ``None``) nothing.
            ``'never'`` denies that pattern, or that subject, without asking any more.
            ``denied.answers`` has those that can be given. Its exceptions become the cause of the
            denial, and so does any other answer. A coroutine function is run by the event loop that
            runs now, while the guarded code waits in another thread. `Approvals` keeps the answers
            in a file.
        ask_seconds: The seconds that a coroutine function has for its answer; ``None`` for any
            number. When they are over the operation is denied.
        log: An `AuditLog`, or the path of one, for the decisions under guards of this factory.
        rules: The rules of the guard: ``'0.1'``, those of fastaudit 0.1, or ``'0.2'``, those of
            fastaudit 0.2, as ``fastaudit_rs.v02.mk_audit`` has them: whatever is not allowed by
            name is denied, and ``oks`` may be ``None``.
        packages: Packages that may do what they need, as one installs or imports them; ``'data'``
            names all that fastaudit_rs declares (numpy, pandas, matplotlib and so on,
            ``docs/packages.md``). Their native code may be called, with that of their requirements;
            importing them may do what is denied otherwise; their variables may be set (with
            ``'data'``, all harmless ones); their own code may use ``ctypes``; and threads may
            start, under the same guard. Native functions of theirs that write files are judged by
            the path.

    Returns:
        A factory of guards. ``with audit_perms()`` turns the checks on in the current context, and
        ``audit_perms.set_data(d)`` replaces ``data``.

    Raises:
        TypeError: An argument has the wrong type; the message names it.
        ValueError: A root is empty, holds a NUL or cannot be encoded, ``tool_id`` is out of range,
            or a name in ``packages`` is neither installed nor declared.
        RuntimeError: ``calls="events"`` or ``retire_sites`` before Python 3.12; a tool id in use;
            ``on_call`` or ``retire_sites`` without ``monitor_calls``; another audit hook refused
            ours.
        PermissionError: Called inside a guard.

    Callbacks run under the guard. An event that is denied while one of them runs is denied without
    calling any. The first call installs one audit hook (PEP 578) for the life of the process.
    Raises the audit event ``audit_perms.set_config`` with ``oks``.

    For example:

        audit_perms = mk_audit([".", "~/results"])
        with audit_perms() as guard:
            exec(code, {})
        print(guard.violations)
    """

def _mk_audit_02(
    oks: Iterable[_Path] | None,
    before_deny: _BeforeDeny | None = None,
    on_call: _OnCall | None = None,
    data: Any = None,
    tool_id: int = 3,
    monitor_calls: bool = True,
    allow_imports: Iterable[str] = (),
    *,
    packages: str | Iterable[str] = (),
) -> AuditPerms:
    """Make a guard factory with the rules of fastaudit 0.2: whatever is not named is denied.

    Reading passes, and writing below the roots; making functions and classes, environment variables
    that no program or import is found by, and the thread of an event loop's own executor.
    Everything else is denied unless ``before_deny`` allows it: the network, processes, threads,
    audit events that nobody knows. ``docs/events.md`` has the rule for each event.

    Native calls pass into modules that installed packages declare safe, in the entry point group
    ``fastaudit_safe_native``, and those that fastaudit 0.2.10 itself declares. A module named in
    the group ``fastaudit_import_allow`` or in ``allow_imports`` may do what is denied otherwise
    while it is imported. The functions in ``fastaudit_audit_hook`` are asked before
    ``before_deny``, those in ``fastaudit_monitor_hook`` before ``on_call``. All are read when the
    first guard is made.

    Args:
        oks: Approved roots, as for ``fastaudit_rs.mk_audit``; ``None`` approves every path.
        before_deny: ``before_deny(event, args, frame, msg, data, calls)``, called before an event
            is denied. A true answer allows it. ``msg`` has the call chain, and where the guard was
            entered if that was in another thread or task. For ``fastaudit.call`` the third argument
            is the call chain. ``calls`` are the tracked calls in progress (`fastaudit_rs.calls`); a
            function that takes five arguments is called without them.
        on_call: ``on_call(caller, callee, fn, code, off, data, calls)``, as for
            ``fastaudit_rs.mk_audit``.
        data: Any object; handed to both callbacks.
        tool_id: The ``sys.monitoring`` tool id to watch calls with, 0 to 5.
        monitor_calls: True if native calls raise ``fastaudit.call``, as for
            ``fastaudit_rs.mk_audit``.
        allow_imports: Modules whose import may do what is denied otherwise, with those below them.
        packages: Packages that may do what they need, as for ``fastaudit_rs.mk_audit``.

    Returns:
        A factory of guards. ``with audit_perms()`` turns the checks on in the current context.
        ``audit_perms.set_data(d)`` replaces ``data``, ``audit_perms.add_imports(*mods)`` adds to
        ``allow_imports``.

    Raises the errors of ``fastaudit_rs.mk_audit``.
    """

def _enter_worker(policy: Policy, calls: str | None, mark: str) -> None:
    """Put a policy in force in a worker of a pool, for good; ``calls`` as in `mk_audit`, or none.

    `RuntimeError` if a guard is active, or a policy is installed.
    """

def _govern(path: _Path) -> None:
    """Keep a file from all code under guards that are made from now on.

    It says what code may do, or what it did. Called by guarded code this does nothing.
    """

def _governing() -> list[bytes]:
    """Return the paths of the files that are kept so."""

@final
class _Interrupts:
    """The interrupts of a thread that runs a step.

    They arrive between `begin` and `end` alone, and not in functions of the host.
    """

    def __new__(cls) -> Self: ...
    def begin(self) -> None:
        """Let this thread be interrupted from now on."""

    def end(self) -> bool:
        """Let it be interrupted no longer; true if one more interrupt is going to arrive."""

    def interrupt(self) -> bool:
        """Raise ``KeyboardInterrupt`` there; false if it waits for a function of the host."""

    def hold(self) -> None:
        """Let the interrupts of this thread wait: it enters a function of the host."""

    def release(self) -> None:
        """Undo `hold`, and raise what waited."""

def _own_directory() -> bool:
    """Give this thread, and those that it starts, their own current directory; true on Linux."""

def _directory() -> str:
    """The directory that relative paths of a policy begin at; `FileNotFoundError` if it is gone."""

def _run_in(
    context: Context,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    /,
) -> Any:
    """Call a function in a copy of a context, under the guard or with the rights in force here."""

def _in_tool() -> bool:
    """True if a tool of the host runs here, with its rights, and not code of the guest."""

def _json_extent(data: bytes) -> tuple[int, int]:
    """The number of values in a JSON text, and their greatest depth, before it is read.

    Of a malformed text the numbers are those of its brackets and commas.
    """

def _native_tables() -> tuple[int, int, int] | None:
    """The entries of native libraries' tables that are replaced, and those that could not be.

    The third number is the nanoseconds that it took. ``None`` before the first guard.
    """

def _hold_sockets(roots: Sequence[_Path], directory: _Path, is_alone: bool) -> None:
    """Make no files of Unix sockets in this thread, for good, but in these directories.

    This holds for the threads and programs that it starts too. Its current directory is another one
    from now on, if the system lets a thread have its own, and it has no privileges (capabilities)
    any more.

    With ``is_alone`` they are moved into an empty network of their own, if the system lets it: it
    takes a privilege, ``CAP_SYS_ADMIN``. `OSError` if the kernel refuses.
    """

def _landlock_version() -> int:
    """Return the version of the kernel's Landlock; below 1 without it."""

def _listeners() -> list[int]:
    """Return the descriptors by which the kernel asks this process about system calls of others."""

def _descriptor_of(thread: int, descriptor: int) -> int:
    """Take a descriptor of the process of a thread, as one of this process: pidfd_getfd(2).

    The two are one open file: its options and its position are shared. Linux alone. `OSError` if
    there is no such thread or descriptor, or this process may not trace the other.
    """

def _remove_directory(path: _Path) -> None:
    """Remove a directory with all that is in it, whatever its depth, names and modes.

    Files that the system does not let go stay. POSIX alone.
    """

def _audit_state() -> dict[str, Any]:
    """The configuration in force, for debugging.

    Returns:
        A ``dict``: ``safe_native`` and ``import_allow``, tuples of module names; ``monitoring``,
        whether this Python has ``sys.monitoring``; ``tool_id``, that of the monitor or ``None``;
        ``active``, whether a guard is in force here; ``monitor_on``, the number of guards that want
        calls watched; ``monitor_calls``, whether the one in force does, or ``None``.
    """

def _merged_approvals(text: str, more: dict[str, Any], never: bool = False) -> str:
    """The text of a file of answers with more permissions, or more that nobody is asked for.

    `ValueError` names the line or the field that is not that of answers.
    """

def _lxml_monitor(
    caller: str,
    callee: str,
    fn: object,
    code: CodeType | None,
    off: int,
    data: object,
    calls: _Calls,
) -> object: ...
def _use_tracker(tracker: _CallTracker) -> None: ...

@disjoint_base
class _CallTracker:
    def __new__(cls, name: str = "fastaudit_active_calls") -> Self: ...
    def active(self) -> tuple[Any, ...]:
        """The calls in progress in the current context, the outermost first."""

    def _begin(self, call: Any) -> _ActiveCall: ...
    def _end(self, call: _ActiveCall) -> None: ...

@final
class _ActiveCall: ...

@final
class Network:
    """Rules for the network. Immutable, hashable, comparable; can be pickled.

    A host is a name (``'example.com'``), all names below one (``'*.example.com'``), ``'*'``, an IP
    address or an IP network (``'10.0.0.0/8'``); perhaps with ports of its own
    (``'example.com:8443'``, ``'[::1]:8000-8999'``). A host that is allowed by name is allowed at
    the addresses that its name was looked up to under the same guard, and only there.

    Args:
        hosts: The hosts that may be reached; ``None`` for all.
        block: Hosts that may not be reached, whatever ``hosts`` says and by whatever name or
            address.
        ports: The ports that may be reached at hosts without ports of their own: numbers, and
            ranges such as ``'8000-8999'``; ``None`` for all.
        listen: The addresses of this machine that may be listened at: ``False`` for none, ``True``
            for all, or an iterable of hosts. ``'0.0.0.0'`` is all of them at once.
        unix: Where Unix sockets may be, for connecting and listening: an iterable of paths, or
            ``None`` for anywhere. ``'@name'`` is one that is not a file. Listening makes a file,
            which has to be inside ``write`` as well.
        lookup: True if the names of hosts that may be reached may be looked up.
        max_connections: The number of sockets that may be connected at a time under one guard;
            ``None`` for any number.
        http: The requests that may be made to the hosts that these name, each a method, a host and
            a path: ``'GET api.example.com/v1/*'``. ``*`` is any method, in a path one segment, and
            at its end all below. Other hosts are held to none. A sandbox reads the requests; under
            a guard without one these hosts are not reached.

    Raises:
        TypeError: An argument has the wrong type; the message names it.
        ValueError: A value is not a host, port, path or request; the message names it and the
            accepted values.
    """

    def __new__(
        cls,
        *,
        hosts: Iterable[str] | None = None,
        block: Iterable[str] = (),
        ports: Iterable[int | str] | None = None,
        listen: bool | Iterable[str] = False,
        unix: Iterable[_Path] | None = (),
        lookup: bool = True,
        max_connections: int | None = None,
        http: Iterable[str] = (),
    ) -> Network: ...
    hosts: Final[tuple[str, ...] | None]
    """The hosts that may be reached; ``None`` for all."""
    block: Final[tuple[str, ...]]
    """Hosts that may not be reached, whatever ``hosts`` says."""
    ports: Final[tuple[int | str, ...] | None]
    """The ports that may be reached; ``None`` for all."""
    listen: Final[bool | tuple[str, ...]]
    """The addresses that may be listened at; ``True`` for all."""
    unix: Final[tuple[str, ...] | None]
    """Where Unix sockets may be; ``None`` for anywhere."""
    lookup: Final[bool]
    """True if the names of hosts that may be reached may be looked up."""
    max_connections: Final[int | None]
    """The number of sockets that may be connected at a time; ``None`` for any number."""
    http: Final[tuple[str, ...]]
    """The requests that may be made to the hosts that these name."""

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]: ...

@final
class _Child:
    """This process, a child that runs code of a sandbox: it ends with its parent.

    It can send signals to itself and to its own children alone, if the kernel can enforce this.
    POSIX alone. `OSError` if the kernel refuses, `RuntimeError` if a guard is active, or a policy
    is installed.
    """

    def __new__(cls, children: _Children) -> Self: ...
    def copy(self, channel: int, host: int) -> int:
        """Copy the process; the copy does nothing until something comes from the socket `host`.

        It ends when the other end of that is gone. When it goes on, its `channel` is `host`.
        Returns its number, in the copy 0; `OSError` if it cannot be copied.
        """

    def copy_ahead(self, channel: int) -> tuple[int, int]:
        """Copy the process before the `host` of `copy` is known: the copy waits for that first.

        Returns its number and the descriptor by which it is handed over; in the copy 0 and -1. The
        copy ends when that is closed. `OSError` if the process cannot be copied.
        """

    def hand(self, connection: int, host: int) -> None:
        """Give a copy that was made ahead its `host`, by the descriptor that `copy_ahead` returned.

        `OSError` if the copy has ended.
        """

    def end(self, status: int) -> NoReturn:
        """End the process without finalising the interpreter."""

@final
class _Children:
    """The children of this process: from now on also their orphaned children.

    It is killed when the process ``parent`` ends, which must be its own, and else with no other.
    POSIX alone. `OSError` if the kernel refuses.
    """

    def __new__(cls, parent: int | None = None) -> Self: ...
    def confine(self, policy: Policy, memory_files: bool, landlock: int, own_network: bool) -> None:
        """Give up all privileges, and filter system calls, for good: the policy's network remains.

        The filter holds what this version of Landlock does not.
        `OSError` if the kernel refuses, or it is not Linux on a 64-bit machine. It may be confined
        in part then.
        """

    def resolved(self, policy: Policy) -> Policy:
        """Return the same policy, whose paths each child takes to lead where they lead now.

        The kernel has the supervisor of a sandbox look at each file that is opened, so that
        looking them up again in each child takes longer than the rest of a short run. `OSError` if
        one cannot be looked up, `ValueError` if it leads nowhere.
        """

    def fork(self) -> int:
        """Copy the process, as ``os.fork()`` does, without its warning of threads."""

    def status(self, child: int, host: int) -> int:
        """Wait for the end of a child; return its exit status, or minus the number of a signal.

        When the other end of the socket `host` is gone, all of them end, this process too.
        """

    def status_or_word(self, child: int, host: int) -> int | None:
        """Return what `status` does; ``None`` if `host` has something to say before."""

    def end(self, patience: float, kept: list[int] = ...) -> bool:
        """Wait for all but `kept`, and kill them after some seconds; true if no others are left."""

@final
class _Directory:
    """The directory of a sandbox, in which no link is followed and regular files alone are opened.

    A name is a list of its parts. POSIX alone; tested on Linux. `OSError` for what cannot be done,
    `ValueError` if a link leads there, `RuntimeError` once it is closed.
    """

    def __new__(cls, path: _Path) -> Self: ...
    def write(self, name: list[str], data: bytes) -> None:
        """Write a regular file, and make the directories that it is in."""

    def read(self, name: list[str], max_bytes: int) -> bytes:
        """Read a regular file; `OSError` if it has more than so many bytes."""

    def names(self) -> list[str]:
        """The names of all files, in order, but those longer than a path can be: 256 MB at most."""

    def begin(self) -> int:
        """Begin a run, and return its number."""

    def end(self, run: int) -> list[str]:
        """End a run; return the names of the files that changed, in order: 16 MB at most."""

    def close(self) -> None:
        """Close it."""

@final
class _DiskWatch:
    """Looks at the bytes that a directory takes, in a thread of its own, until they are too many.

    The pauses are ten times as long as a look takes, and 50 ms at least. Files of the directory
    without a name count too, if ``process`` or a descendant of it has them open.
    """

    def __new__(cls, directory: _Path, most: int, process: int | None) -> Self: ...
    @staticmethod
    def used(directory: _Path) -> int:
        """The bytes that a directory takes now."""

    def is_over(self) -> bool:
        """True if they were too many."""

    def close(self) -> None:
        """End the thread."""

@final
class _TemporaryFiles:
    """Temporary directories that guards of several configurations share."""

    def __new__(cls) -> Self: ...

@final
class _Confinement:
    """The part of a policy that the kernel holds.

    Whatever it says, ``needed`` can be read, and ``ports`` of TCP are free.
    """

    def __new__(cls, policy: Policy, needed: Iterable[str], ports: Iterable[int] = ()) -> Self: ...
    def enter(self) -> None:
        """Confine the current thread, for good; `RuntimeError` if it is the main thread."""

    def enter_process(self) -> None:
        """Confine the process, for good; `RuntimeError` if it has more than one thread."""

@final
class Policy:
    """Rules for code. Immutable, hashable, comparable; can be pickled.

    Args:
        write: Where may be written: an iterable of paths (``str``, ``bytes`` or ``os.PathLike``,
            UTF-8), or ``None`` for anywhere. Nowhere by default. ``'.'`` is the current directory,
            ``'~'`` the home directory; all are resolved when a guard is made. A path approves
            itself and everything below it.
        read: Where may be read, likewise; anywhere by default. The standard library and installed
            packages, from which modules are imported, can always be read.
        block: Paths that nothing may read or write, whatever ``write`` and ``read`` say;
            directories that hold them may not be moved.
        protect: Names that are kept from writing even inside ``write``, wherever they are:
            ``'.git/hooks'`` protects ``a/.git/hooks/b``. ``True`` for those of
            ``Policy.PROTECTED``, ``False`` for none, or an iterable of names.
        max_bytes: The bytes that may be written to files in one guard: a number, a size such as
            ``'10M'`` (1024 * 1024 * 10), or ``None`` for any number.
        commands: Programs that may be started: ``False`` for none, ``True`` for all, or an iterable
            of names, as found on ``PATH`` when the guard is made, and paths. A shell command is
            started by ``sh``. A program is not watched.
        env: Environment variables that may be set and removed: ``False`` for none, ``True`` for all
            but those that decide what other programs run or load (``PATH``, ``LD_*``, ``PYTHON*``
            and so on), or an iterable of names, which may name those too; ``'MY_*'`` is for all
            that begin so.
        import_allow: Installed packages that may do what the policy denies while they are imported
            (set a variable, load a library, start a thread), ``'*'`` for all. Blocked and protected
            files stay so.
        threads: ``'deny'``, or ``'inherit'``: threads may be started, and run under the same guard.
        unknown_events: ``'allow'`` or ``'deny'`` audit events that ``docs/events.md`` does not
            name.
        native: Native modules from outside the standard library that may be called: ``False`` for
            none but those that ``mk_audit`` lets pass, ``True`` for all (calls are not watched
            then), or an iterable of modules. What native code does to files, which hosts it
            reaches and which programs it starts is judged by the other fields. With
            ``'unjudged'`` all may be called, and nothing that they do is judged.
        on_violation: The answer to an operation that the policy does not allow: ``'raise'``; with
            the others it proceeds and is in ``guard.violations``: ``'warn'`` (`AuditWarning`),
            ``'log'`` (``logging.getLogger('fastaudit_rs')``, with ``to_dict()`` as the attribute
            ``fastaudit`` of the record), or a function that is called with the `AuditDenied`. An
            exception of that function stops the operation.
        imports: Modules that may be imported if they were not imported yet: ``True`` for all,
            ``False`` for none, an iterable of modules, or a dict with such an ``'allow'`` and a
            ``'block'``, an iterable of modules that nobody may import. Imports of an installed
            module are not looked at but for ``'block'``.
        network: Operations on the network: ``True`` for everything, ``False`` for nothing (no
            connecting, listening, sending to an address and looking up hosts; sockets that are
            connected already can be used), or a `Network` of rules.
        packages: Packages that may do what they need, as for `mk_audit`: ``'data'``, or an iterable
            of names. It adds to the other fields.

    Raises:
        TypeError: An argument has the wrong type; the message names it.
        ValueError: A value that is not accepted: an empty path, one with a NUL or that is not
            UTF-8, a protected name with an empty, ``'.'`` or ``'..'`` part, a variable's name with
            ``=``, a command with arguments, an invalid name of a module.

    A guard of a policy treats everything else as ``mk_audit`` does.
    """

    PROTECTED: ClassVar[list[str]]
    """The names that are protected unless a policy says otherwise."""

    PRESETS: ClassVar[list[str]]
    """The names that `preset` takes."""

    def __new__(
        cls,
        *,
        write: Iterable[_Path] | None = (),
        read: Iterable[_Path] | None = None,
        block: Iterable[_Path] = (),
        protect: bool | Iterable[_Path] = True,
        max_bytes: int | str | None = None,
        commands: bool | Iterable[_Path] = False,
        env: bool | Iterable[str] = False,
        import_allow: Iterable[str] = (),
        threads: Literal["deny", "inherit"] = "deny",
        unknown_events: Literal["allow", "deny"] = "allow",
        native: bool | Literal["unjudged"] | Iterable[str] = False,
        on_violation: Literal["raise", "warn", "log"] | _OnViolation = "raise",
        imports: bool | Iterable[str] | dict[str, Any] = True,
        network: bool | Network | dict[str, Any] = True,
        packages: str | Iterable[str] = (),
    ) -> Policy: ...
    write: Final[tuple[str, ...] | None]
    """Where may be written, as given; ``None`` for anywhere."""
    read: Final[tuple[str, ...] | None]
    """Where may be read, as given; ``None`` for anywhere."""
    block: Final[tuple[str, ...]]
    """The paths that nothing may read or write, as given."""
    protect: Final[bool | tuple[str, ...]]
    """The names that are kept from writing; ``True`` for the preset."""
    max_bytes: Final[int | None]
    """The bytes that may be written to files; ``None`` for any number."""
    commands: Final[bool | tuple[str, ...]]
    """The programs that may be started, as given; ``True`` for all."""
    env: Final[bool | tuple[str, ...]]
    """The environment variables that may be set; ``True`` for all but the dangerous ones."""
    import_allow: Final[tuple[str, ...]]
    """Packages whose import may do what the policy denies otherwise."""
    threads: Final[Literal["deny", "inherit"]]
    """``'inherit'`` if threads may be started, under the same guard; else ``'deny'``."""
    unknown_events: Final[Literal["allow", "deny"]]
    """``'allow'`` if unknown audit events pass; else ``'deny'``."""
    native: Final[bool | Literal["unjudged"] | tuple[str, ...]]
    """The native modules that may be called; ``True`` for all.

    ``'unjudged'``: all, and what they do is not judged.
    """
    on_violation: Final[Literal["raise", "warn", "log"] | _OnViolation]
    """The answer to an operation that the policy does not allow."""
    imports: Final[bool | tuple[str, ...] | dict[str, Any]]
    """The modules that may be imported; a dict if some are blocked."""
    packages: Final[tuple[str, ...]]
    """Packages that may do what they need, as given."""
    network: Final[bool | Network]
    """Operations on the network."""

    def replace(
        self,
        *,
        write: Iterable[_Path] | None = ...,
        read: Iterable[_Path] | None = ...,
        block: Iterable[_Path] = ...,
        protect: bool | Iterable[_Path] = ...,
        max_bytes: int | str | None = ...,
        commands: bool | Iterable[_Path] = ...,
        env: bool | Iterable[str] = ...,
        import_allow: Iterable[str] = ...,
        threads: Literal["deny", "inherit"] = ...,
        unknown_events: Literal["allow", "deny"] = ...,
        native: bool | Literal["unjudged"] | Iterable[str] = ...,
        on_violation: Literal["raise", "warn", "log"] | _OnViolation = ...,
        imports: bool | Iterable[str] | dict[str, Any] = ...,
        network: bool | Network | dict[str, Any] = ...,
        packages: str | Iterable[str] = ...,
    ) -> Policy:
        """The same policy with other values for some fields; raises the errors of ``Policy``."""

    def guard(
        self,
        before_deny: _BeforeDeny | None = None,
        on_call: _OnCall | None = None,
        data: Any = None,
        tool_id: int = 3,
        monitor_calls: bool = True,
        *,
        calls: Literal["events", "callee"] | None = None,
        retire_sites: bool = False,
        on_denied: _OnDenied | None = None,
        on_ask: _OnAsk | None = None,
        ask_seconds: float | None = None,
        log: AuditLog | _Path | None = None,
    ) -> AuditPerms:
        """Make a guard factory for code that may do what the policy says.

        ``with policy.guard()(): ...``

        Takes the arguments of `mk_audit` except ``oks``, and raises its errors. The paths of the
        policy are resolved now. A program in ``commands`` that does not exist warns, and so does a
        path in ``write`` whose directory does not exist. If ``native`` is ``True`` no calls are
        watched, unless there is an ``on_call``.
        """

    def observe(
        self,
        before_deny: _BeforeDeny | None = None,
        on_call: _OnCall | None = None,
        data: Any = None,
        tool_id: int = 3,
        monitor_calls: bool = True,
        *,
        calls: Literal["events", "callee"] | None = None,
        on_denied: _OnDenied | None = None,
        enforce: bool = False,
        log: _Path | None = None,
    ) -> Observer:
        """Make a guard factory that records the operations of code.

        ``with observe() as recording: ...``

        Takes the arguments of `guard`, and raises its errors. With ``enforce`` an operation that
        the policy does not allow is denied; otherwise it proceeds and is recorded, without calling
        ``before_deny`` or ``on_denied``. ``log`` is a file to which each decision is added as it is
        made, a line of JSON each, in the form that ``docs/recording.md`` describes; ``OSError`` is
        raised if it cannot be opened.
        """

    def install(
        self,
        before_deny: _BeforeDeny | None = None,
        on_call: _OnCall | None = None,
        data: Any = None,
        tool_id: int = 3,
        monitor_calls: bool = True,
        *,
        calls: Literal["events", "callee"] | None = None,
        on_denied: _OnDenied | None = None,
        on_ask: _OnAsk | None = None,
        ask_seconds: float | None = None,
        log: AuditLog | _Path | None = None,
    ) -> None:
        """Turn the policy on for the whole process and every thread, for good.

        Nothing turns it off again. Guards can be entered beside it, and restrict more. A policy
        that is installed later holds beside the first, each with its own callbacks.

        Takes the arguments of `guard`, and raises its errors, and:

        Raises:
            RuntimeError: A policy is installed already, and this one allows something that it does
                not; the message names the field.
        """

    def call(
        self, function: Callable[_Params, _Result], /, *args: _Params.args, **kwargs: _Params.kwargs
    ) -> _Result:
        """Call a function on a thread of its own that a guard and the kernel confine.

        The thread is under a guard of this policy, and under what Landlock (landlock(7)) can hold
        of it: where may be written and read, whether programs may start, whether TCP may be used.
        This holds until the thread ends, for native code and for the threads and programs that it
        starts too. The rest of the process stays free. ``docs/sandbox.md`` says what is not
        covered. The function has a copy of the current context (PEP 567); its result is returned,
        and its exceptions are raised.

        Raises:
            AuditDenied: The guard denied something.
            OSError: This system has no Landlock, or the kernel denied something.
        """

    def _told_in(
        self,
        words: str,
        written: Policy | None = None,
        line: str = "",
        unnamed: list[str] = ...,
    ) -> Policy:
        """The same policy, with another wording of hints than that of Python."""

    def _begun_in(self, directory: str) -> Policy:
        """The same policy where ``'.'`` is this directory."""

    def _shown(self) -> str:
        """The policy in one line, with only the fields that differ from their defaults."""

    def _warn_of_missing(self) -> None:
        """Warn of roots and programs that do not exist."""

    @overload
    def tool(
        self,
        function: Callable[_Params, _Result],
        /,
        *,
        name: str | None = None,
        policy: Policy | None = None,
        raw: bool = False,
    ) -> Callable[_Params, _Result]:
        """Make a tool: a function that guarded code may call, and that runs with the host's rights.

        ``@policy.tool``, ``@policy.tool(policy=...)`` or ``policy.tool(function)``. The result is a
        `Tool`.

        Args:
            function: A function or a coroutine function. It is called with the host's rights, and
                with what its annotations name; code of the guest that runs meanwhile (callbacks,
                finalizers) stays guarded.
            name: Its name in messages and recordings; by default that of the function.
            policy: A policy to run it under, instead of the host's rights.
            raw: True if arguments, results and exceptions are handed over as they are. By default
                they are data, and copied.

        Raises:
            TypeError: It is not a function, or a generator function; or nobody can tell how data
                become what an annotation names.
            AuditDenied: Guarded code makes no tools.
        """
    @overload
    def tool(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        policy: Policy | None = None,
        raw: bool = False,
    ) -> Callable[[Callable[_Params, _Result]], Callable[_Params, _Result]]: ...
    def session(
        self,
        *,
        id: str | None = None,
        tools: Tools | None = None,
        directory: _Path | None = None,
        timeout: float | None = None,
        output: int | str | None = "10M",
        snapshots: int = 8,
        tool_calls: int = 1000,
        pending_seconds: float | None = None,
        monitor_calls: bool = True,
        before_deny: _BeforeDeny | None = None,
        on_call: _OnCall | None = None,
        data: Any = None,
        tool_id: int = 3,
        calls: Literal["events", "callee"] | None = None,
        retire_sites: bool = False,
        on_denied: _OnDenied | None = None,
        on_ask: _OnAsk | None = None,
        ask_seconds: float | None = None,
        log: AuditLog | _Path | None = None,
    ) -> Session:
        """A session: steps of code that share names, on a thread of their own under a guard.

        ``result = policy.session().run("1 + 1")``

        The thread is no process: native code that does not return cannot be ended, and what the
        code changes in the interpreter lasts. ``docs/limits.md`` tells; `Sandbox.session` has the
        same methods and a process of its own.

        Args:
            id: The name under which `Session.save` keeps it in a store; one is made by default.
            tools: Functions of the host that steps may call, by name, as if by `tool`; or a list of
                functions, of tools of LangChain, Pydantic AI or smolagents, and of `MCP` servers.
            directory: Its first current directory, that of the process by default. If it is given,
                ``'.'`` in the policy is it, and `Result.changed` has the files that change in it.
            timeout: The seconds that a step may take.
            output: The bytes that a step may write to standard output and error, each.
            snapshots: The number of states that `Session.snapshot` keeps at a time.
            tool_calls: The number of calls of tools that a step may make.
            pending_seconds: The time in which a question can be answered that waits, because
                ``on_ask`` answered ``"pending"``.
            monitor_calls: As in `guard`.
            before_deny: As in `guard`.
            on_call: As in `guard`.
            data: As in `guard`.
            tool_id: As in `guard`.
            calls: As in `guard`.
            retire_sites: As in `guard`.
            on_denied: As in `guard`.
            on_ask: As in `guard`; ``"pending"`` ends the step, which `Session.answer` runs again.
            ask_seconds: As in `guard`. The time of an answer is not that of the step.
            log: As in `guard`.

        Raises:
            OSError: The directory cannot be used.
            TypeError: An argument has another type.
            ValueError: An argument has a wrong value.
        """

    def worker_plugin(self) -> GuardPlugin:
        """Make a plugin that gives the policy to the workers of Dask.

        ``client.register_plugin(policy.worker_plugin())`` gives it to present and future workers.
        Functions that are `guarded` without a policy run under it there.

        Raises:
            ImportError: The package ``distributed`` is not installed.
        """

    def _name_rule(self, name: str, port: int, /) -> str | None:
        """Return the rule that denies connecting to a host by its name, without looking it up.

        The name is in lower case, without a dot at its end.
        """

    def _holds_requests(self, host: str, port: int, /) -> bool:
        """Return whether the requests to a host are held to ``Network.http``."""

    def _request(self, host: str, port: int, method: str, path: str, /) -> str | None:
        """Return the path of a request in the form in which it was judged, if it may be made.

        The host, a name in lower case or an address, is one of ``Network.http``.
        """

    def explain(
        self, event: str, /, *args: Any, approvals: Approvals | _Path | None = None
    ) -> Explanation:
        """The verdict of a guard of this policy on an audit event, without doing it.

        A denial is reported also if ``on_violation`` lets the operation proceed. An event that
        passes because neither Python nor this package raises it warns, unless it is named like an
        event of another package. With ``approvals``, a file of answers, the verdict is that of a
        guard with it, and ``approved_by`` or ``refused_by`` names it.

        For example:

            Policy(network=False).explain("socket.getaddrinfo", "a.org", 80, 0, 0, 0).rule
        """

    def lint(self) -> list[str]:
        """The rules that never apply, each as a sentence that begins with the field.

        A root inside another or inside ``block``, a program that does not exist, and so on.
        """

    def to_toml(self) -> str:
        """The policy as TOML, with all fields.

        Raises:
            ValueError: ``on_violation`` is a function.
        """

    @staticmethod
    def preset(name: str) -> Policy:
        """A policy to begin with: one of ``Policy.PRESETS``.

        Raises:
            ValueError: There is no preset of that name.
        """

    @staticmethod
    def from_toml(path: _Path) -> Policy:
        """Read a policy from a TOML file, or from ``[tool.fastaudit]`` in a ``pyproject.toml``.

        Raises:
            ValueError: The file is no TOML, has a key that is no field, or a value that is not
                accepted; the message names the file, the key and what is accepted.
            OSError: The file cannot be read.
        """

    @staticmethod
    def parse_toml(text: str) -> Policy:
        """Read a policy from the text of a TOML file; raises ``ValueError`` as `from_toml` does."""

@final
class Observer:
    """Makes guards that record: ``with observe() as recording: ...``."""

    def __call__(self) -> Recording:
        """Make a guard to enter with ``with``."""

    def _share(self, files: _TemporaryFiles) -> None:
        """Have recordings from now on share a directory for temporary files."""

@final
class Recording:
    """A guard that records the operations of code, and the recording.

    Each effect is kept once, the first 10,000, with its count.
    """

    def __enter__(self) -> Recording: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
    def _keep(self) -> Recording:
        """The same recording, which continues when it is entered again."""

    effects: Final[list[Effect]]
    """The operations, in the order in which each was done first."""
    dropped: Final[int]
    """The number of decisions left out of `effects`, as there were too many different ones."""
    never_allowed: Final[list[str]]
    """The events among them that no policy allows, but a ``before_deny`` may."""

    def summary(self) -> str:
        """A table of the operations."""

    def to_json(self) -> str:
        """Everything as JSON, in the form that ``docs/recording.md`` describes."""

    def suggest(self, threshold: int = 10) -> Policy:
        """The least policy under which all of it passes.

        Paths are exact. A directory stands for its entries only if at least ``threshold`` of them
        were touched and it holds no others.

        Raises:
            TypeError: ``threshold`` is not an ``int``.
            ValueError: It is less than 1.
        """

    def _repr_html_(self) -> str: ...

@final
class Effect:
    """An operation under a guard that observes, and how often it was done."""

    event: Final[str]
    """The audit event."""
    event_args: Final[tuple[Any, ...]]
    """The arguments of the event; objects that are not plain values as their ``repr()``."""
    effect: Final[str | None]
    """The effect of the operation: ``'write'``, ``'process'`` and so on; ``docs/events.md``."""
    path: Final[str | None]
    """The resolved path of its target."""
    host: Final[str | None]
    """The host that was reached."""
    verdict: Final[str]
    """``'allowed'``, the field of the policy that does not allow it, or ``'denied'``."""
    count: Final[int]
    """The number of times that it was done."""
    tool: Final[str | None]
    """The tool that did it with rights of its own; ``None`` if the guest did."""
    call_chain: Final[tuple[str, ...]]
    """The functions that led to it the first time, the outermost first."""

@final
class Explanation:
    """The answer of `Policy.explain`; as text it is ``'allowed'`` or the message of the denial."""

    allowed: Final[bool]
    """True if the event would pass."""
    denied: Final[AuditDenied | None]
    """The denial that would be raised."""
    approved_by: Final[Path | None]
    """The file of answers that allows what the policy denies."""
    refused_by: Final[Path | None]
    """The file of answers that keeps its denial: nobody is asked."""
    rule: Final[str | None]
    """The field of the policy that denies it; ``None`` if the event is denied as such."""

@final
class AuditPerms:
    """Makes guards of one configuration: ``with audit_perms(): ...``."""

    def __call__(self) -> Guard:
        """Make a guard to enter with ``with``, or to decorate a function with."""

    def _in_force(self) -> bool:
        """Tell whether a guard of this configuration is in force here."""

    tool_id: Final[int | None]
    """The ``sys.monitoring`` tool id calls are watched with; ``None`` without a monitor."""

    def _share(self, files: _TemporaryFiles) -> None:
        """Have guards entered from now on share a directory for temporary files."""

    def _temporary_directory(self) -> str | None:
        """The guards' own directory for temporary files, which is made if it does not exist."""

    def set_data(self, d: _Data) -> _Data:
        """Replace the host data for guards entered from now on, and return it.

        Raises the audit event ``audit_perms.set_data``, which is denied inside a guard.
        """

    @overload
    def tool(
        self,
        function: Callable[_Params, _Result],
        /,
        *,
        name: str | None = None,
        policy: Policy | None = None,
        raw: bool = False,
    ) -> Callable[_Params, _Result]:
        """Make a tool, as `Policy.tool` does."""
    @overload
    def tool(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        policy: Policy | None = None,
        raw: bool = False,
    ) -> Callable[[Callable[_Params, _Result]], Callable[_Params, _Result]]: ...
    def add_imports(self, *mods: str) -> tuple[str, ...]:
        """Add modules whose import may do what is denied otherwise, for guards entered from now on.

        Returns all of them. Raises the audit event ``audit_perms.add_imports``, which is denied
        inside a guard.

        Raises:
            TypeError: One is not a ``str``.
            RuntimeError: The guards do not have the rules of fastaudit 0.2.
        """

@final
class Tool:
    """A function of the host that guarded code may call: made by `Policy.tool`.

    It runs with the host's rights, or under the policy that it was made with, and the guard is back
    in force when it returns. Arguments and results are passed by value, up to 16 MB, 1,048,576
    values and 90 levels: None, numbers, text, bytes, lists, tuples, dicts, sets, dates, decimals,
    UUIDs, paths, arrays of numpy, frames of pandas, images of Pillow. An instance of a subclass
    becomes one of the class itself; anything else is a ``TypeError``. The annotation of a parameter
    says what the function gets: a dataclass made of a dictionary, a date of its text. Of
    dataclasses, models and enums that the function returns the code gets the data.
    Python's own exceptions are made anew; of others the code that called gets a `ToolError`. No
    attribute leads to the function. Whoever has a tool can call it, also by importing its module.
    """

    __name__: str
    __qualname__: str
    __signature__: Signature | None

    schema: Final[dict[str, Any]]
    """A JSON schema: ``name``, ``description``, and ``parameters``, the schema of its arguments."""
    _is_async: Final[bool]
    """True if calls of it are awaited."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

@final
class Guard:
    """A guard: checks are on in the current context from ``__enter__`` to ``__exit__``.

    A guard can be entered again after it was left, but not while it is entered. As a decorator it
    guards each call of the function, also of a coroutine function. Entering raises the audit event
    ``audit_perms.set_config`` unless a guard of the same configuration is in force.
    """

    def __enter__(self) -> Guard: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
    def __aenter__(self) -> Awaitable[Guard]: ...
    def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> Awaitable[None]: ...
    def _keep(self) -> Guard:
        """The same guard, which continues its log when it is entered again.

        Denials, look-ups and bytes written add up: a cell's statements are run one by one.
        """

    violations: Final[list[AuditDenied]]
    """The denials since the guard was entered last, the first thousand, in order.

    Also those that the guarded code, or a library, caught. These are new exceptions without a
    traceback; they have the call chain that was read from the original.
    """
    violation_count: Final[int]
    """The number of denials since the guard was entered last."""

    def __call__(self, function: _Function, /) -> _Function:
        """Decorate a function or coroutine function: each call runs under a guard of its own.

        Raises:
            TypeError: Not a function, or a generator function, whose body runs after the call.
        """

@final
class AuditLog:
    """A log of the decisions of guards: a line of JSON for each, as ``docs/recording.md`` has it.

    A decision is an event that a policy was asked about, allowed or denied. Reading counts
    where it is restricted. Up to 63 lines are kept back: until an operation is denied, a second is
    over and another one comes, a guard with this log is left, or the process ends. Copies of the
    process (``os.fork``) write whole lines to the same file. Guarded code cannot change the file by
    its path. The lines are links of a chain: each has a number, the hash of the one before and its
    own, and a file that is there goes on with the next. A file that cannot be written stops nobody:
    its lines wait, up to 16 MB, and others are counted in ``lost``.

    Args:
        file: The path of a file to append to, which is made if it does not exist; a file
            descriptor, which is copied; or a function that a thread calls with some lines
            (``bytes``, each line ends with a newline). A function gets no lines of copies of the
            process.
        name: The name of the guards that write to it, for the key ``guard``.

    Raises:
        TypeError: ``file`` or ``name`` is something else.
        OSError: The file cannot be opened.
        RuntimeError: A guard is in force here.

    Examples:
        >>> log = AuditLog("audit.jsonl", name="agent 7")
        >>> with Policy(write=["/srv/out"]).guard(log=log)():
        ...     run(code)
    """

    def __new__(
        cls, file: _Path | int | Callable[[bytes], object], *, name: str | None = None
    ) -> AuditLog: ...
    def named(self, name: str, /) -> AuditLog:
        """The same log, for guards of this name.

        Raises:
            TypeError: The name is not a ``str``.
        """

    name: Final[str | None]
    """The name of the guards that write to it."""
    path: Final[str | None]
    """The resolved path of its file; ``None`` for a descriptor and a function."""
    lost: Final[int]
    """The number of lines of this process that were lost."""
    head: Final[tuple[int, str] | None]
    """The number (``seq``) and the hash of the last line that this process added to the chain.

    Kept elsewhere, they show whether that line and all before it are still there:
    ``fastaudit-rs log verify FILE --expect HASH``. Call `flush` first; ``None`` before a line.
    """

    def flush(self) -> None:
        """Write the lines that are kept back."""

    def close(self) -> None:
        """Write the lines that are kept back, and count those that follow as lost.

        Raises:
            RuntimeError: A guard is in force here.
        """

    @staticmethod
    def _of_guest(descriptor: int, /) -> AuditLog:
        """Make a log to a descriptor whose lines the host makes links of a chain."""

    def _add(self, lines: bytes) -> None:
        """Add lines that another process told of, each with a newline."""

    def _wake(self) -> None:
        """End a wait for lines."""

    def _take(self, seconds: float) -> bytes | None:
        """Wait for lines and take them; ``None`` once it is closed.

        The thread is the log's own from the first call on; others get a `RuntimeError`.
        """

@final
class AuditCfg:
    """The configuration of a guard. Immutable.

    It is the argument of the event ``audit_perms.set_config`` that entering a guard raises.
    """

    oks: Final[tuple[str, ...]]
    """The approved roots, resolved when the guard was made.

    ``'.'``, of `mk_audit` alone, is the current directory at the time of each check.
    """
    before_deny: Final[_BeforeDeny | None]
    """The callback that may allow a denied event."""
    on_call: Final[_OnCall | None]
    """The callback that may suppress the event of a native call."""
    on_denied: Final[_OnDenied | None]
    """The callback that is called with each denial."""
    on_ask: Final[_OnAsk | None]
    """The callback that is asked before an operation is denied."""
    data: Final[Any]
    """The host data, handed to both callbacks."""
    monitor_calls: Final[bool]
    """True if native calls raise ``fastaudit.call``."""
    retire_sites: Final[bool]
    """True if a call site is no longer watched after a call of anything but native code."""
    import_allow: Final[tuple[str, ...]]
    """The packages whose import may do what is denied otherwise."""

@final
class _Denial:
    """The notes of a guard on a denial; `AuditDenied` documents what it tells."""

    def __new__(cls, message: str) -> _Denial: ...
    event: Final[str]
    event_args: Final[tuple[Any, ...]]
    message: Final[str]
    effect: Final[str | None]
    path: Final[str | None]
    resolved: Final[str | None]
    link: Final[str | None]
    rule: Final[str | None]
    host: Final[str | None]
    command: Final[str | None]
    callee: Final[str | None]
    roots: Final[tuple[str, ...]]
    tool: Final[str | None]
    library: Final[str | None]
    package: Final[str | None]
    place: Final[str | None]
    origin: Final[str | None]
    hint: Final[str | None]
    suggestion: Final[dict[str, Any] | None]
    answers: Final[list[Answer]]
    def approval(self, answer: Answer) -> dict[str, Any] | None: ...
    answer: Final[str | None]
    def call_chain(self, traceback: TracebackType | None) -> tuple[str, ...]: ...
    def exception(self) -> AuditDenied: ...
    def text(self, traceback: TracebackType | None) -> str: ...
    def to_dict(self, traceback: TracebackType | None) -> dict[str, Any]: ...
    @staticmethod
    def from_dict(fields: dict[str, Any]) -> AuditDenied: ...
