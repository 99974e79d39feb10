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
"""``on_call(caller, callee, fn, code, off, data)``: ``False`` or ``sys.monitoring.DISABLE`` lets
the call pass without an event.

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
    """Make guards for code that may write only below some roots: ``with audit_perms(): ...``.

    Args:
        oks: The roots, an iterable of ``str``, ``bytes`` or ``os.PathLike``: code may write there
            and below. ``['/']`` approves every path, ``[]`` none. ``'~'`` is expanded and links are
            resolved now; ``'.'`` is the current directory at each check. A root that does not exist
            causes a ``UserWarning``, unless it looks like a file that the code will make.
        before_deny: ``before_deny(event, args, frame, msg, data)``, called before the guard denies
            an event. A true answer allows it. ``frame`` is the innermost Python frame. Guarded code
            gets what it raises.
        on_call: ``on_call(caller, callee, fn, code, off, data)``, called before a native call
            becomes the event ``fastaudit.call``. ``False`` lets the call pass without the event;
            ``sys.monitoring.DISABLE`` also lets later calls of the call site pass. Needs
            ``monitor_calls``.
        data: Any object, for both callbacks.
        tool_id: The ``sys.monitoring`` tool id of the guard, 0 to 5; by default 3 or another free
            one (``AuditPerms.tool_id``).
        monitor_calls: ``False`` watches no calls. Otherwise each call of native code outside the
            standard library is the audit event ``fastaudit.call``.
        calls: How the guard watches calls. With ``"events"`` CPython reports each call (PEP 669,
            Python 3.12 and newer), which slows code that calls much. With ``"callee"`` native code
            reports its own calls: other code runs at full speed, and calls by ``map``, ``sorted``
            and the like are seen too. It sees a native function that was made under the guard if
            native code returned it. ``None`` takes the environment variable
            ``FASTAUDIT_RS_CALLS``, or else ``"events"`` (``"callee"`` before Python 3.12).
        retire_sites: ``True`` stops watching a call site after its first call of Python code or of
            the standard library. Code runs at nearly full speed, but the guard misses native code
            that the site calls later. Needs ``monitor_calls`` and ``calls="events"``. It has no
            effect on free-threaded builds.
        on_denied: ``on_denied(denied)``, called with each `AuditDenied` before it is raised. What
            it raises becomes the cause of the denial.
        on_ask: ``on_ask(denied)``, called with the `AuditDenied` after ``before_deny``, for one of
            ``denied.answers``: ``'once'`` (or ``True``) allows this operation; ``'guard'`` its
            file, variable, module, or host with its port, as long as the factory lives;
            ``'pattern'`` the file's directory, the command's program or the module's package;
            ``'deny'`` (``False``, ``None``) nothing; ``'never'`` nothing, and it is not asked about
            that pattern again. Another answer, or what it raises, becomes the cause of the denial.
            A coroutine function runs in the event loop that runs now, while the guarded code waits
            in another thread. `Approvals` keeps answers in a file.
        ask_seconds: The seconds that a coroutine function has for its answer; then the operation is
            denied. ``None`` sets no limit.
        log: An `AuditLog`, or its path, for the decisions of these guards.
        rules: ``'0.1'`` for the rules of fastaudit 0.1; ``'0.2'`` for those of fastaudit 0.2, which
            deny whatever they do not allow by name and let ``oks`` be ``None``.
        packages: Packages that may do what they need, by the names under which you install or
            import them; ``'data'`` names all that ``docs/packages.md`` lists. Code may call their
            native code and that of their requirements, import them and start threads under the
            same guard. They may set their variables (with ``'data'`` all harmless ones) and use
            ``ctypes``. The guard still judges the files that their native code writes.

    Returns:
        A factory of guards. ``with audit_perms()`` turns the checks on in the current context, and
        ``audit_perms.set_data(d)`` replaces ``data``.

    Raises:
        TypeError: An argument has the wrong type; the message names it.
        ValueError: A root is empty, contains a NUL or cannot be encoded, ``tool_id`` is out of
            range, or a name in ``packages`` is neither installed nor declared.
        RuntimeError: ``calls="events"`` or ``retire_sites`` before Python 3.12; ``on_call`` or
            ``retire_sites`` without ``monitor_calls``; a ``tool_id`` that another tool uses;
            another audit hook that refuses ours.
        PermissionError: Guarded code called it.

    Callbacks run under the guard: what it denies to a callback calls no other one. The first call
    of this function adds one audit hook (PEP 578) for the life of the process, and each call raises
    the audit event ``audit_perms.set_config`` with ``oks``.

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
    """Make guards with the rules of fastaudit 0.2, which deny whatever they do not allow by name.

    They allow reading, writing below the roots, making functions and classes, the thread of an
    event loop's own executor, and variables that do not decide where programs and modules are
    found. They deny everything else, such as the network, processes, threads and unknown audit
    events, unless ``before_deny`` allows it. ``docs/events.md`` has the rule for each event.

    Guards read four groups of entry points when the first is made. Code may call the native modules
    in ``fastaudit_safe_native``, and those that fastaudit 0.2.10 itself declares. The modules in
    ``fastaudit_import_allow``, and in ``allow_imports``, may do anything while they are imported.
    The functions in ``fastaudit_audit_hook`` are asked before ``before_deny``, those in
    ``fastaudit_monitor_hook`` before ``on_call``.

    Args:
        oks: The roots, as for ``fastaudit_rs.mk_audit``; ``None`` approves every path.
        before_deny: ``before_deny(event, args, frame, msg, data, calls)``, called before the guard
            denies an event. A true answer allows it. ``msg`` has the call chain, and where another
            thread or task entered the guard. For ``fastaudit.call`` the third argument is the call
            chain. ``calls`` are the tracked calls in progress (`fastaudit_rs.calls`); a function
            with five parameters does not get them.
        on_call: ``on_call(caller, callee, fn, code, off, data, calls)``, as for
            ``fastaudit_rs.mk_audit``.
        data: Any object; handed to both callbacks.
        tool_id: The ``sys.monitoring`` tool id to watch calls with, 0 to 5.
        monitor_calls: ``False`` watches no calls, as for ``fastaudit_rs.mk_audit``.
        allow_imports: Modules that may do anything while they are imported, with those below them.
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

def _disconnect(descriptor: int) -> None:
    """Take the connection of a socket, or its peer, from it: connect(2) with ``AF_UNSPEC``."""

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

    A host is a name (``'example.com'``), all names below one (``'*.example.com'``), all names
    (``'*'``), an IP address or an IP network (``'10.0.0.0/8'``), with or without ports
    (``'example.com:8443'``, ``'[::1]:8000-8999'``). A name allows the addresses that its look-up
    returned under the same guard.

    Args:
        hosts: Hosts that code may connect to; ``None`` for all.
        block: Hosts that code may not connect to, under any name or address, whatever ``hosts``
            says.
        ports: Ports that code may connect to at hosts without ports of their own: numbers, and
            ranges such as ``'8000-8999'``; ``None`` for all.
        listen: Addresses of this machine at which code may listen: ``False`` for none, ``True``
            for all, or an iterable of hosts. ``'0.0.0.0'`` stands for listening at all of them at
            once.
        unix: Paths of Unix sockets, or directories of them, where code may connect and listen:
            an iterable, or ``None`` for anywhere. ``'@name'`` is an abstract one. Listening makes a
            file, so the path must be inside ``write`` too.
        lookup: ``False`` denies looking up even the names that ``hosts`` allows.
        max_connections: How many sockets code may have connected at a time under one guard;
            ``None`` sets no limit.
        http: Requests that code may make, each a method, a host and a path:
            ``'GET api.example.com/v1/*'``. ``*`` is any method, in a path one segment, and at its
            end everything below. Hosts without a rule take any request. Only a sandbox reads
            requests: other guards deny connecting to hosts with rules.

    Examples:
        >>> policy = Policy(network=Network(hosts=["pypi.org:443", "*.example.com"]))
        >>> policy.explain("socket.getaddrinfo", "example.org", 443, 0, 0, 0).rule
        'network.hosts'

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
    """Hosts that code may connect to; ``None`` for all."""
    block: Final[tuple[str, ...]]
    """Hosts that code may not connect to, whatever ``hosts`` says."""
    ports: Final[tuple[int | str, ...] | None]
    """Ports that code may connect to; ``None`` for all."""
    listen: Final[bool | tuple[str, ...]]
    """Addresses at which code may listen; ``True`` for all."""
    unix: Final[tuple[str, ...] | None]
    """Paths where code may use Unix sockets; ``None`` for anywhere."""
    lookup: Final[bool]
    """False if code may not look up names."""
    max_connections: Final[int | None]
    """How many sockets code may have connected at a time; ``None`` without a limit."""
    http: Final[tuple[str, ...]]
    """Requests that code may make to the hosts that these name."""

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
    """What code may do. Immutable, hashable, comparable; can be pickled.

    ``docs/policy.md`` explains each field. Paths are ``str``, ``bytes`` or ``os.PathLike``, in
    UTF-8; ``'.'`` is the current directory and ``'~'`` the home directory. All are resolved when a
    guard is made. A directory stands for everything in it.

    Args:
        write: Paths that code may write: an iterable, or ``None`` for anywhere. Nowhere by default.
        read: Paths that code may read: an iterable, or ``None`` for anywhere, the default. Code can
            always read the standard library, installed packages and what ``write`` names.
        block: Paths that code may neither read nor write, whatever ``write`` and ``read`` say.
        protect: Names that code may not write even inside ``write``: ``'.git/hooks'`` protects
            ``a/.git/hooks/b``. ``True`` for those of ``Policy.PROTECTED``, ``False`` for none, or
            an iterable of names.
        max_bytes: The bytes that code may write to files under one guard: a number, a size such as
            ``'10M'`` (10 * 1024 * 1024), or ``None`` for no limit.
        commands: Programs that code may start: ``False`` for none, ``True`` for all, or an iterable
            of paths and of names that are looked up on ``PATH`` when the guard is made. A shell
            command needs ``'/bin/sh'``. The guard does not watch the program.
        env: Environment variables that code may set and remove: ``False`` for none; ``True`` for
            all but those that decide what other programs run or load (``PATH``, ``LD_*``,
            ``PYTHON*`` and so on); or an iterable of names, also of those. ``'MY_*'`` is a prefix.
        import_allow: Installed packages whose import may do what the policy denies otherwise, such
            as set a variable, load a library or start a thread; ``'*'`` for all. ``block`` and
            ``protect`` still apply.
        threads: ``'deny'``, or ``'inherit'``: code may start threads, which run under the same
            guard.
        unknown_events: ``'allow'`` or ``'deny'``, for audit events that ``docs/events.md`` does not
            name.
        native: Native modules outside the standard library that code may call: ``False`` for none,
            ``True`` for all (then the guard watches no calls), or an iterable of modules and
            packages. The other fields judge the files, hosts and programs that native code uses,
            except with ``'unjudged'``, which allows calling all.
        on_violation: What happens when the policy does not allow an operation. ``'raise'`` denies
            it. With the others it proceeds, and ``guard.violations`` has it: ``'warn'`` gives an
            `AuditWarning`; ``'log'`` a record of ``logging.getLogger('fastaudit_rs')``, with
            ``to_dict()`` as its attribute ``fastaudit``; a function gets the `AuditDenied`, and
            stops the operation by raising.
        imports: Modules that code may import: ``True`` for all, ``False`` for none, an iterable, or
            a dict with such an ``'allow'`` and with ``'block'``, modules that no code may import.
            Installed modules may import everything that ``'block'`` does not name. Modules that
            were imported before stay usable.
        network: ``True`` for the whole network; ``False`` for none (no connecting, listening,
            sending to an address and looking up hosts; open connections still work); or a
            `Network`.
        packages: Packages that may do what they need, as for `mk_audit`: ``'data'``, or an iterable
            of names. It adds to the other fields.

    Examples:
        >>> policy = Policy(write=["/srv/out"], network=False)
        >>> print(policy.explain("open", "/srv/data/a.txt", "w", 0).rule)
        write

    Raises:
        TypeError: An argument has the wrong type; the message names it.
        ValueError: A value is not accepted, such as an empty path, a command with arguments or a
            variable's name with ``=``; the message names it.

    Operations that no field decides, such as signals, follow the rules of `mk_audit`.
    """

    PROTECTED: ClassVar[list[str]]
    """The names that ``protect=True`` protects."""

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
    """Paths that code may write, as given; ``None`` for anywhere."""
    read: Final[tuple[str, ...] | None]
    """Paths that code may read, as given; ``None`` for anywhere."""
    block: Final[tuple[str, ...]]
    """Paths that code may neither read nor write, as given."""
    protect: Final[bool | tuple[str, ...]]
    """Names that code may not write; ``True`` for `PROTECTED`."""
    max_bytes: Final[int | None]
    """The bytes that code may write to files; ``None`` without a limit."""
    commands: Final[bool | tuple[str, ...]]
    """Programs that code may start, as given; ``True`` for all."""
    env: Final[bool | tuple[str, ...]]
    """Variables that code may set; ``True`` for all but the dangerous ones."""
    import_allow: Final[tuple[str, ...]]
    """Packages whose import is exempt from the policy."""
    threads: Final[Literal["deny", "inherit"]]
    """``'inherit'`` if code may start threads, under the same guard; else ``'deny'``."""
    unknown_events: Final[Literal["allow", "deny"]]
    """``'allow'`` if unknown audit events pass; else ``'deny'``."""
    native: Final[bool | Literal["unjudged"] | tuple[str, ...]]
    """Native modules that code may call; ``True`` for all.

    With ``'unjudged'`` all, and the guard does not judge what they do.
    """
    on_violation: Final[Literal["raise", "warn", "log"] | _OnViolation]
    """What happens when the policy does not allow an operation."""
    imports: Final[bool | tuple[str, ...] | dict[str, Any]]
    """Modules that code may import; a dict if some are blocked."""
    packages: Final[tuple[str, ...]]
    """Packages that may do what they need, as given."""
    network: Final[bool | Network]
    """The network: ``True``, ``False`` or a `Network`."""

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
        """Make guards for code that may do what the policy says: ``with policy.guard()(): ...``.

        Takes the arguments of `mk_audit` except ``oks``, and raises its errors. Resolves the paths
        of the policy now. A program in ``commands`` that does not exist causes a ``UserWarning``,
        and so does a path in ``write`` whose directory does not exist. If ``native`` is ``True``,
        the guards watch calls only for an ``on_call``.
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
        """Make guards that record what code does.

        Takes the arguments of `guard` that it names, and raises its errors. Operations that the
        policy does not allow proceed, without calling ``before_deny`` or ``on_denied``.

        Args:
            before_deny: As in `guard`, with ``enforce``.
            on_call: As in `guard`.
            data: As in `guard`.
            tool_id: As in `guard`.
            monitor_calls: As in `guard`.
            calls: As in `guard`.
            on_denied: As in `guard`, with ``enforce``.
            enforce: ``True`` denies what the policy does not allow.
            log: The path of a file that gets a line of JSON for each decision at once, in the form
                that ``docs/recording.md`` describes.

        Raises:
            OSError: The file of ``log`` cannot be opened.

        Examples:
            >>> with Policy().observe()() as recording:
            ...     import json
            >>> policy = recording.suggest()
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
        """Turn the policy on for every thread of the process, for good.

        Guards can only restrict more. A second policy holds beside the first, each with its own
        callbacks. Takes the arguments of `guard`, and raises its errors.

        Raises:
            RuntimeError: This policy allows something that an installed one does not; the message
                names the field.
        """

    def call(
        self, function: Callable[_Params, _Result], /, *args: _Params.args, **kwargs: _Params.kwargs
    ) -> _Result:
        """Call a function on a new thread that a guard and the kernel confine.

        A guard of this policy holds on the thread, and the kernel's Landlock (landlock(7)) enforces
        its files, whether programs may start and whether code may use TCP, also for native code
        and for the threads and programs that the function starts. The rest of the process stays
        free. ``docs/sandbox.md`` says what this does not cover. The function runs in a copy of the
        current context (PEP 567). Returns its result, and raises what it raises.

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
        """Make a `Tool`: a function with the host's rights that guarded code may call.

        Write ``@policy.tool``, ``@policy.tool(policy=...)`` or ``policy.tool(function)``.

        Args:
            function: A function or a coroutine function. It gets what its annotations name. Guarded
                code that runs during the call (callbacks, finalizers) stays guarded.
            name: Its name in messages and recordings; by default that of the function.
            policy: A policy that it runs under, instead of with the host's rights.
            raw: ``True`` passes arguments, results and exceptions as they are. By default they are
                data, which are copied.

        Raises:
            TypeError: It is not a function, is a generator function, or has an annotation that no
                data can become.
            AuditDenied: Guarded code called it.

        Examples:
            >>> policy = Policy()
            >>> @policy.tool
            ... def price(item: str) -> float:
            ...     return {"tea": 3.5}[item]
            >>> with policy.guard()():
            ...     exec("print(price('tea'))", {"price": price})
            3.5
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
        """Make a session: steps that share names, on a thread of their own under a guard.

        Nothing ends native code on the thread that does not return, and what steps change in the
        interpreter lasts (``docs/limits.md``). `Sandbox.session` has the same methods and a process
        of its own.

        Args:
            id: The name under which `Session.save` keeps it in a store; a random one by default.
            tools: What steps may call: a mapping from names to functions of the host; or a list of
                functions, tools of LangChain, Pydantic AI or smolagents, and `MCP` servers.
            directory: Where steps start; by default the current directory. If you pass it, it is
                the ``'.'`` of the policy, and `Result.changed` has the files that change in it.
            timeout: The seconds that a step may take; ``None`` sets no limit.
            output: The bytes that a step may write to standard output and to standard error, as a
                number or a size such as ``"10M"``; ``None`` sets no limit.
            snapshots: How many states `Session.snapshot` keeps at a time.
            tool_calls: How many calls of tools a step may make.
            pending_seconds: The seconds in which `Session.answer` takes an answer, after ``on_ask``
                answered ``"pending"``; ``None`` sets no limit.
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
            OSError: There is no such directory.
            TypeError: An argument has another type; the message names it.
            ValueError: An argument has a wrong value; the message names it.

        Examples:
            >>> with Policy(network=False).session(timeout=60) as session:
            ...     ran = session.run("x = 6")
            ...     session.run("x * 7").value
            42
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
        """Judge an audit event as a guard of this policy would, without doing it.

        Reports a denial even if ``on_violation`` lets the operation proceed. An event that neither
        Python nor this package raises causes a ``UserWarning``, unless its name looks like another
        package's.

        Args:
            event: The name of the event, as in ``docs/events.md``.
            *args: Its arguments.
            approvals: An `Approvals` or its file: the answers there count too, and ``approved_by``
                or ``refused_by`` names the file.

        Raises:
            TypeError: ``event`` is not a ``str``.

        For example:

            Policy(network=False).explain("socket.getaddrinfo", "a.org", 80, 0, 0, 0).rule
        """

    def lint(self) -> list[str]:
        """Name rules that never apply, such as a path inside ``block``, a sentence for each."""

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
    """Makes guards that record: ``with observe() as recording: ...``. `Policy.observe` makes it."""

    def __call__(self) -> Recording:
        """Make a guard to enter with ``with``."""

    def _share(self, files: _TemporaryFiles) -> None:
        """Have recordings from now on share a directory for temporary files."""

@final
class Recording:
    """A guard that records what code does: ``with policy.observe()() as recording: ...``.

    It keeps each effect once, with its count, up to 10,000 effects.
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
    """The operations, in the order of their first time."""
    dropped: Final[int]
    """The number of decisions that found no place in `effects`."""
    never_allowed: Final[list[str]]
    """Events that no policy allows; a ``before_deny`` can."""

    def summary(self) -> str:
        """A table of the operations."""

    def to_json(self) -> str:
        """Everything as JSON; ``docs/recording.md`` describes the keys."""

    def suggest(self, threshold: int = 10) -> Policy:
        """The least policy that allows everything recorded.

        Args:
            threshold: A directory replaces its entries if code touched all of them, and at least
                this many. Other paths are exact.

        Raises:
            TypeError: ``threshold`` is not an ``int``.
            ValueError: ``threshold`` is less than 1.
        """

    def _repr_html_(self) -> str: ...

@final
class Effect:
    """An operation in a `Recording`, and how often code did it."""

    event: Final[str]
    """The audit event."""
    event_args: Final[tuple[Any, ...]]
    """The arguments of the event; objects that are not plain values as their ``repr()``."""
    effect: Final[str | None]
    """The effect of the operation: ``'write'``, ``'process'`` and so on; ``docs/events.md``."""
    path: Final[str | None]
    """The resolved path that it touched."""
    host: Final[str | None]
    """The host that it reached, or looked up."""
    verdict: Final[str]
    """``'allowed'``, the field that denies it, or ``'denied'`` if no policy allows it."""
    count: Final[int]
    """How many times code did it."""
    tool: Final[str | None]
    """The `Tool` that did it; ``None`` if guarded code did."""
    call_chain: Final[tuple[str, ...]]
    """The functions that led to it the first time, outermost first."""

@final
class Explanation:
    """The answer of `Policy.explain`; its text is ``'allowed'`` or the message of the denial."""

    allowed: Final[bool]
    """True if a guard would allow the event."""
    denied: Final[AuditDenied | None]
    """The denial that a guard would raise; ``None`` if it allows the event."""
    approved_by: Final[Path | None]
    """The file of answers that allows what the policy denies."""
    refused_by: Final[Path | None]
    """The file of answers that denies it, so that nobody is asked."""
    rule: Final[str | None]
    """The field that denies it; ``None`` if it is allowed, or if no policy allows it."""

@final
class AuditPerms:
    """Makes guards: ``with audit_perms(): ...``. `mk_audit` and `Policy.guard` make it."""

    def __call__(self) -> Guard:
        """Make a guard to enter with ``with``, or to decorate a function with."""

    def _in_force(self) -> bool:
        """Tell whether a guard of this configuration is in force here."""

    tool_id: Final[int | None]
    """The ``sys.monitoring`` tool id of its guards; ``None`` if they do not use one."""

    def _share(self, files: _TemporaryFiles) -> None:
        """Have guards entered from now on share a directory for temporary files."""

    def _temporary_directory(self) -> str | None:
        """The guards' own directory for temporary files, which is made if it does not exist."""

    def set_data(self, d: _Data) -> _Data:
        """Replace ``data`` of the callbacks for guards entered from now on, and return it.

        Raises the audit event ``audit_perms.set_data``, which guards deny.
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
        """Add modules to ``allow_imports`` for guards entered from now on, and return all of them.

        Raises the audit event ``audit_perms.add_imports``, which guards deny.

        Raises:
            TypeError: A name is not a ``str``.
            RuntimeError: The guards do not have the rules of fastaudit 0.2.
        """

@final
class Tool:
    """A function of the host that guarded code may call; `Policy.tool` makes it.

    It runs with the host's rights, or under the policy that it was made with. When it returns, the
    guard holds again. Arguments and results are copied, up to 16 MB, 1,048,576 values and 90
    levels: None, numbers, text, bytes, lists, tuples, dicts, sets, dates, decimals, UUIDs, paths,
    arrays of numpy, frames of pandas and polars, images of Pillow. An instance of a subclass
    becomes one of the class itself; other objects are a ``TypeError``.

    The function gets what its annotations name, such as a dataclass for a dictionary, or a date for
    its text. Dataclasses, models and enums that it returns become data. The code gets copies of
    built-in exceptions, and a `ToolError` for others. No attribute leads to the function. All code
    that gets hold of the tool can call it, also by importing its module.
    """

    __name__: str
    __qualname__: str
    __signature__: Signature | None

    schema: Final[dict[str, Any]]
    """A JSON schema with ``name``, ``description`` and ``parameters``."""
    _is_async: Final[bool]
    """True if calls of it are awaited."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

@final
class Guard:
    """A guard: ``with audit_perms() as guard: ...`` judges what runs in the current context.

    It can be entered again after its block, but not inside it. ``@audit_perms()`` guards each call
    of a function or a coroutine function. Entering raises the audit event
    ``audit_perms.set_config``, unless a guard of the same factory is in force.
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
    """The denials since the guard was entered last, in order, up to a thousand.

    It has those too that guarded code, or a library, caught. They are new exceptions: without a
    traceback, but with the call chain.
    """
    violation_count: Final[int]
    """The number of denials since the guard was entered last."""

    def __call__(self, function: _Function, /) -> _Function:
        """Decorate a function or a coroutine function: each call runs under a guard of its own.

        Raises:
            TypeError: It is not a function, or a generator function, whose body runs after the
                call.
        """

@final
class AuditLog:
    """A log of what guards decide: a line of JSON for each decision (``docs/recording.md``).

    A decision is an event that the policy must judge, allowed or denied. The log keeps up to 63
    lines back, until the guard denies something, the next line comes after a second, the guard
    ends or the process ends. Copies of the process (``os.fork``) write whole lines to the same
    file. Guarded code cannot change the file by its path. The lines form a chain of hashes, which
    a log of the same file continues. If the file cannot be written, code continues: up to 16 MB of
    lines wait, and ``lost`` counts the others.

    Args:
        file: The path of a file to append to or make; a file descriptor, which the log copies; or
            a function that a thread calls with some lines (``bytes``, each with its newline). A
            function gets no lines of copies of the process.
        name: The name of the guards, for the key ``guard``.

    Raises:
        TypeError: ``file`` or ``name`` has another type.
        OSError: The file cannot be opened.
        RuntimeError: Guarded code called it.

    Examples:
        >>> log = AuditLog("audit.jsonl", name="agent 7")
        >>> with Policy(write=["/srv/out"]).guard(log=log)():
        ...     run(code)
    """

    def __new__(
        cls, file: _Path | int | Callable[[bytes], object], *, name: str | None = None
    ) -> AuditLog: ...
    def named(self, name: str, /) -> AuditLog:
        """The same log with another name of guards.

        Raises:
            TypeError: The name is not a ``str``.
        """

    name: Final[str | None]
    """The name of the guards."""
    path: Final[str | None]
    """The resolved path of its file; ``None`` for a descriptor and a function."""
    lost: Final[int]
    """How many lines of this process found no place."""
    head: Final[tuple[int, str] | None]
    """The number (``seq``) and the hash of the last line that this process added to the chain.

    ``None`` before the first line. Call `flush` first, and keep the hash elsewhere: ``fastaudit-rs
    log verify FILE --expect HASH`` says whether that line and all before it are still there.
    """

    def flush(self) -> None:
        """Write the lines that it keeps back."""

    def close(self) -> None:
        """Write the lines that it keeps back, and count later ones as lost.

        Raises:
            RuntimeError: Guarded code called it.
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
    """The configuration of a guard, which the event ``audit_perms.set_config`` has. Immutable."""

    oks: Final[tuple[str, ...]]
    """The roots, resolved; ``'.'`` of `mk_audit` is the current directory at each check."""
    before_deny: Final[_BeforeDeny | None]
    """The callback that can allow an event."""
    on_call: Final[_OnCall | None]
    """The callback that can suppress the event of a native call."""
    on_denied: Final[_OnDenied | None]
    """The callback that gets each denial."""
    on_ask: Final[_OnAsk | None]
    """The callback that can answer a question before a denial."""
    data: Final[Any]
    """The object that ``before_deny`` and ``on_call`` get."""
    monitor_calls: Final[bool]
    """True if the guard watches calls of native code."""
    retire_sites: Final[bool]
    """True if the guard stops watching a call site after a harmless call."""
    import_allow: Final[tuple[str, ...]]
    """Packages whose import is exempt from the policy."""

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
