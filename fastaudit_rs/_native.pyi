"""The native core of fastaudit_rs. What is documented here is offered by `fastaudit_rs` itself."""

from collections.abc import Awaitable, Callable, Iterable
from os import PathLike
from types import CodeType, FrameType, TracebackType
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, final

from .denied import AuditDenied

__all__ = [
    "AuditCfg",
    "AuditPerms",
    "Explanation",
    "Guard",
    "Policy",
    "_Denial",
    "__version__",
    "mk_audit",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Data = TypeVar("_Data")
_Path: TypeAlias = str | bytes | PathLike[str] | PathLike[bytes]

_BeforeDeny: TypeAlias = Callable[[str, tuple[Any, ...], FrameType | None, str, Any], object]
"""``before_deny(event, args, frame, msg, data)``: a true answer allows the event."""

_OnCall: TypeAlias = Callable[[str, str, Any, CodeType, int, Any], object]
"""``on_call(caller, callee, fn, code, off, data)``: ``False`` or ``sys.monitoring.DISABLE``
suppresses the call's event."""

_OnDenied: TypeAlias = Callable[[AuditDenied], object]
"""``on_denied(denied)``: told of each denial before it is raised."""

__version__: Final[str]

def mk_audit(
    oks: Iterable[_Path],
    before_deny: _BeforeDeny | None = None,
    on_call: _OnCall | None = None,
    data: Any = None,
    tool_id: int = 3,
    monitor_calls: bool = True,
    *,
    retire_sites: bool = False,
    on_denied: _OnDenied | None = None,
) -> AuditPerms:
    """Make a guard factory for code that may write only below the approved roots.

    Args:
        oks: Approved roots, an iterable of ``str``, ``bytes`` or ``os.PathLike``. Each is
            resolved now, links included; ``'.'`` stands for the current directory at the time of
            each check; ``'/'`` approves every path. No roots: nothing may be written.
        before_deny: ``before_deny(event, args, frame, msg, data)``, called before an event is
            denied. A true answer allows it. ``frame`` is the innermost Python frame. What it
            raises goes to the guarded code. What is denied while it runs is denied without asking
            it again.
        on_call: ``on_call(caller, callee, fn, code, off, data)``, called before a native call
            raises ``fastaudit.call``. ``False`` suppresses the event;
            ``sys.monitoring.DISABLE`` does so for the call site. Needs ``monitor_calls``.
        data: Any object; handed to both callbacks.
        tool_id: The ``sys.monitoring`` tool id to watch calls with, 0 to 5.
        monitor_calls: Whether calls of native code that is not in the standard library raise the
            audit event ``fastaudit.call``. Needs Python 3.12 (PEP 669).
        retire_sites: Whether a call site is watched no longer once it called Python code or the
            standard library: code runs at nearly full speed, and native code that is called there
            later goes unseen. Needs ``monitor_calls``.
        on_denied: ``on_denied(denied)``, called with the ``AuditDenied`` before it is raised. What
            it raises becomes the cause of the denial. What is denied while it runs is denied
            without telling it.

    Returns:
        A factory: ``with audit_perms(): ...`` turns the checks on in the current context, and
        ``audit_perms.set_data(d)`` replaces ``data``.

    Raises:
        TypeError: An argument has the wrong type; the message names it.
        ValueError: A root holds a NUL or cannot be encoded, or ``tool_id`` is out of range.
        RuntimeError: ``monitor_calls`` on a Python without ``sys.monitoring``; a tool id in use;
            ``on_call`` or ``retire_sites`` without ``monitor_calls``; another audit
            hook refused ours.
        PermissionError: Called inside a guard.

    The first call installs one audit hook (PEP 578) for the life of the process. Raises the audit
    event ``audit_perms.set_config`` with ``oks``.
    """

@final
class Policy:
    """What code may do. Immutable, hashable, comparable; it can be pickled.

    Args:
        write: Where may be written: an iterable of paths (``str``, ``bytes`` or ``os.PathLike``,
            UTF-8), or ``None`` for anywhere. Nowhere by default. ``'.'`` is the current directory
            at the time of each check, ``'~'`` the home directory; all others are resolved when a
            guard is made.
        read: Where may be read, likewise; anywhere by default. What modules are imported from, the
            standard library and installed packages, can always be read.
        block: Paths that nothing may read or write, whatever ``write`` and ``read`` say, nor move
            what holds them.
        protect: Names that are kept from writing even inside ``write``, wherever they are:
            ``'.git/hooks'`` protects ``a/.git/hooks/b``. ``True`` for those of
            ``Policy.PROTECTED``, ``False`` for none, or an iterable of names.
        env: Which environment variables may be set and removed: ``False`` for none, ``True`` for
            all but those that decide what other programs run or load (``PATH``, ``LD_*``,
            ``PYTHON*`` and so on), or an iterable of names, which may name those too; ``'MY_*'``
            is for all that begin so.
        commands: Which programs may be started: ``False`` for none, ``True`` for all, or an
            iterable of names, as found on ``PATH`` when the guard is made, and paths. A shell
            command is started by ``sh``. What a program does is not watched.
        network: Whether code may connect, listen, send to an address and look up hosts. Sockets
            that are connected already can be used.

    Raises:
        TypeError: An argument has the wrong type; the message names it.
        ValueError: A value that is not accepted: an empty path, one with a NUL or that is not
            UTF-8, a protected name with an empty, ``'.'`` or ``'..'`` part, a variable's name with
            ``=``, a command with arguments.

    Everything else a guard of a policy treats as ``mk_audit`` does.
    """

    PROTECTED: ClassVar[list[str]]
    """The names that are protected unless a policy says otherwise."""

    def __new__(
        cls,
        *,
        write: Iterable[_Path] | None = (),
        read: Iterable[_Path] | None = None,
        block: Iterable[_Path] = (),
        protect: bool | Iterable[_Path] = True,
        env: bool | Iterable[str] = False,
        network: bool = True,
        commands: bool | Iterable[_Path] = False,
    ) -> Policy: ...
    @property
    def write(self) -> tuple[str, ...] | None:
        """Where may be written, as given; ``None`` for anywhere."""

    @property
    def read(self) -> tuple[str, ...] | None:
        """Where may be read, as given; ``None`` for anywhere."""

    @property
    def block(self) -> tuple[str, ...]:
        """What nothing may read or write, as given."""

    @property
    def protect(self) -> bool | tuple[str, ...]:
        """The names that are kept from writing; ``True`` for the preset."""

    @property
    def env(self) -> bool | tuple[str, ...]:
        """The environment variables that may be set; ``True`` for all but the dangerous ones."""

    @property
    def network(self) -> bool:
        """Whether the network may be used."""

    @property
    def commands(self) -> bool | tuple[str, ...]:
        """The programs that may be started, as given; ``True`` for all."""

    def replace(self, **changes: Any) -> Policy:
        """The same policy with other values for some fields; raises what ``Policy`` does."""

    def guard(
        self,
        before_deny: _BeforeDeny | None = None,
        on_call: _OnCall | None = None,
        data: Any = None,
        tool_id: int = 3,
        monitor_calls: bool = True,
        *,
        retire_sites: bool = False,
        on_denied: _OnDenied | None = None,
    ) -> AuditPerms:
        """Make a guard factory for code that may do what the policy says.

        Takes and raises what `mk_audit` does but for ``oks``. The paths of the policy are resolved
        now.
        """

    def explain(self, event: str, /, *args: Any) -> Explanation:
        """What a guard of this policy would make of an audit event, without doing it."""

    def to_toml(self) -> str:
        """The policy as TOML, with all fields."""

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
class Explanation:
    """What `Policy.explain` answers; as text it is ``'allowed'`` or that of the denial."""

    @property
    def allowed(self) -> bool:
        """Whether the event would pass."""

    @property
    def denied(self) -> AuditDenied | None:
        """The denial that would be raised."""

    @property
    def rule(self) -> str | None:
        """The field of the policy that denies it; ``None`` where the event is denied as such."""

@final
class AuditPerms:
    """Makes guards of one configuration: ``with audit_perms(): ...``."""

    def __call__(self) -> Guard:
        """Make a guard to enter with ``with``, or to decorate a function with."""

    def set_data(self, d: _Data) -> _Data:
        """Replace the host data for guards entered from now on, and return it.

        Raises the audit event ``audit_perms.set_data``, which is denied inside a guard.
        """

@final
class Guard:
    """A guard: checks are on in the current context from ``__enter__`` to ``__exit__``.

    Enter it once at a time; it can be entered again after it was left. As a decorator it guards
    each call of the function, also of a coroutine function. Entering raises the audit event
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
    @property
    def violations(self) -> list[AuditDenied]:
        """What was denied since the guard was entered last, the first thousand, in order.

        Also what the guarded code, or a library, caught. These are new exceptions without a
        traceback; they have the call chain that was read of the one that was raised.
        """

    @property
    def violation_count(self) -> int:
        """How much was denied since the guard was entered last."""

    def __call__(self, function: _Function, /) -> _Function:
        """Decorate a function or coroutine function: each call runs under a guard of its own.

        Raises:
            TypeError: Not a function, or a generator function, whose body runs after the call.
        """

@final
class AuditCfg:
    """The configuration of a guard. Immutable.

    It is the argument of the event ``audit_perms.set_config`` that entering a guard raises.
    """

    @property
    def oks(self) -> tuple[str, ...]:
        """The approved roots, resolved when the guard was made.

        ``'.'`` is the current directory at the time of each check.
        """

    @property
    def before_deny(self) -> _BeforeDeny | None:
        """The callback that may allow what would be denied."""

    @property
    def on_call(self) -> _OnCall | None:
        """The callback that may suppress the event of a native call."""

    @property
    def on_denied(self) -> _OnDenied | None:
        """The callback that is told of each denial."""

    @property
    def data(self) -> Any:
        """The host data, handed to both callbacks."""

    @property
    def monitor_calls(self) -> bool:
        """Whether native calls raise ``fastaudit.call``."""

    @property
    def retire_sites(self) -> bool:
        """Whether a call site is watched no longer once it called what is not native code."""

@final
class _Denial:
    """What a guard notes of a denial; `AuditDenied` documents what it tells."""

    def __new__(cls, message: str) -> _Denial: ...
    @property
    def event(self) -> str: ...
    @property
    def event_args(self) -> tuple[Any, ...]: ...
    @property
    def message(self) -> str: ...
    @property
    def effect(self) -> str | None: ...
    @property
    def path(self) -> str | None: ...
    @property
    def rule(self) -> str | None: ...
    @property
    def host(self) -> str | None: ...
    @property
    def command(self) -> str | None: ...
    @property
    def callee(self) -> str | None: ...
    @property
    def roots(self) -> tuple[str, ...]: ...
    @property
    def hint(self) -> str | None: ...
    def call_chain(self, traceback: TracebackType | None) -> tuple[str, ...]: ...
    def text(self, traceback: TracebackType | None) -> str: ...
    def to_dict(self, traceback: TracebackType | None) -> dict[str, Any]: ...
    @staticmethod
    def from_dict(fields: dict[str, Any]) -> AuditDenied: ...
