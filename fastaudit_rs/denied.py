"""The exceptions that guards, and their tools, raise."""

from ._native import _Denial
from ._text import harmless

# Importing `typing` takes longer than all of this package.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._answers import Answer

#: The event of a call of a tool of an MCP server, which the host is asked about.
TOOL_CALL = "fastaudit.tool"


class AuditDenied(PermissionError):
    """A guard denied an operation.

    Its only argument is the message, as in ``fastaudit``. ``str()`` adds the call chain, the
    setting that would allow the operation, and that trying again does not help. It can be pickled.
    Its fields are plain values: apart from its traceback it keeps nothing of the guarded code
    alive.

    Examples:
        >>> try:
        ...     with Policy().guard(monitor_calls=False)():
        ...         open("/srv/a", "w")
        ... except AuditDenied as denied:
        ...     print(denied.rule, denied.path, denied.hint)
        write /srv/a write = ['/srv/a']
    """

    __module__ = "fastaudit_rs"
    __slots__ = ("_denial",)

    _denial: _Denial

    # Errors of the system have both, and code that raises this one again passes them on. With
    # `EACCES` some of the standard library would go on without writing. This is `EPERM` everywhere.
    errno = 1

    if not TYPE_CHECKING:

        @property
        def args(self):
            """The message, unless other code set them."""
            given = super().args
            try:
                return given or (self._denial.message,)
            except AttributeError:
                return given

        @args.setter
        def args(self, given):
            BaseException.__dict__["args"].__set__(self, given)

    @property
    def strerror(self) -> str:  # type: ignore[override]
        """The message, as an ``OSError`` has it."""
        return _of(self).message

    @property
    def event(self) -> str:
        """The audit event."""
        return _of(self).event

    @property
    def event_args(self) -> "tuple[Any, ...]":
        """The arguments of the event; other objects than plain values as their ``repr()``."""
        return _of(self).event_args

    @property
    def message(self) -> str:
        """The first line of the text."""
        return _of(self).message

    @property
    def effect(self) -> str | None:
        """The effect, such as ``'write'`` or ``'native'``: see ``docs/events.md``."""
        return _of(self).effect

    @property
    def path(self) -> str | None:
        """The path, as the code gave it; ``None`` if the operation has none."""
        return _of(self).path

    @property
    def resolved(self) -> str | None:
        """Where ``path`` led when the operation was denied, with links followed.

        It is the file or the entry of a directory that the operation would change; for
        ``os.symlink`` where the new link would lead. ``None`` if that is unknown.
        """
        return _of(self).resolved

    @property
    def link(self) -> str | None:
        """The link to ``resolved`` that the operation would make."""
        return _of(self).link

    @property
    def rule(self) -> str | None:
        """The field of the policy that decided; ``None`` if no field allows the event."""
        return _of(self).rule

    @property
    def host(self) -> str | None:
        """The host that the code would reach."""
        return _of(self).host

    @property
    def command(self) -> str | None:
        """The command that the code would run, as a shell reads it."""
        return _of(self).command

    @property
    def callee(self) -> str | None:
        """The native code that the code would call, ``'module.function'``."""
        return _of(self).callee

    @property
    def roots(self) -> tuple[str, ...]:
        """The places where the guard allows writing."""
        return _of(self).roots

    @property
    def call_chain(self) -> tuple[str, ...]:
        """The functions that led to the operation, ``'module.function'``, outermost first.

        The first use reads the traceback, so use it where you catch the exception.
        """
        return _of(self).call_chain(self.__traceback__)

    @property
    def place(self) -> str | None:
        """The innermost line outside the standard library and installed packages, ``'file:line'``.

        ``None`` if no such code led to the operation.
        """
        return _of(self).place

    @property
    def tool(self) -> str | None:
        """The name of the tool that was running."""
        return _of(self).tool

    @property
    def library(self) -> str | None:
        """The file of the native library that asked for it; ``None`` if Python code did."""
        return _of(self).library

    @property
    def package(self) -> str | None:
        """The package that installed ``library``, by the name to import."""
        return _of(self).package

    @property
    def origin(self) -> str | None:
        """Where another thread or task entered a guard with the rules of fastaudit 0.2."""
        return _of(self).origin

    @property
    def hint(self) -> str | None:
        """The setting that would allow the operation, in the form in which the policy was written.

        Each field is complete: it has its present values, and what this guard denied by the same
        field before.
        """
        return _of(self).hint

    @property
    def suggestion(self) -> "dict[str, Any] | None":
        """The same as data that JSON can hold: pass it to `Policy.replace`, or to ``mk_audit``.

        ``network`` is a dict of the arguments of `Network`. ``None`` if no field would allow it.
        """
        return _of(self).suggestion

    @property
    def answers(self) -> "tuple[Answer, ...]":
        """The answers that ``on_ask`` can give.

        ``'guard'`` and ``'pattern'`` are missing where no field allows just that: for a blocked
        path, a shell, or a directory with all of a user's files. If both are missing, so is
        ``'never'``. ``'step'`` is for calls of tools of MCP servers.
        """
        once, *others = _of(self).answers
        return (once, "step", *others) if self.event == TOOL_CALL else (once, *others)

    def approval(self, answer: "Answer") -> "dict[str, Any] | None":
        """Return the fields that an answer would add to the policy; ``None`` if it adds none.

        For ``'never'`` they name what nobody would be asked about any more.

        Raises:
            ValueError: ``answer`` is not an `Answer`.
        """
        return _of(self).approval(answer)

    @property
    def answer(self) -> str | None:
        """What came of asking ``on_ask``; ``None`` without one.

        In a sandbox it also says that nobody was asked, because no answer opens what the kernel
        denies.
        """
        return _of(self).answer

    def to_dict(self) -> "dict[str, Any]":
        """Return all fields as values that JSON can hold.

        The keys are ``message``, ``event``, ``args`` (those of the event), ``effect``, ``path``,
        ``resolved``, ``link``, ``rule``, ``host``, ``command``, ``callee``, ``roots``,
        ``call_chain``, ``place``, ``origin``, ``tool``, ``library``, ``package``, ``hint``,
        ``suggestion``, ``approvals`` (``approval()`` of ``'guard'`` and ``'pattern'``) and
        ``answer``.
        """
        told = _of(self).to_dict(self.__traceback__)
        told["args"] = _in_json(told["args"])
        return told

    @staticmethod
    def from_dict(fields: "dict[str, Any]") -> "AuditDenied":
        """Make the exception that ``to_dict()`` described.

        Raises:
            KeyError: A key of ``to_dict()`` is missing.
            TypeError: A value has another type than there.
        """
        return _Denial.from_dict(fields)

    def __str__(self) -> str:
        """The message with help to act on it."""
        return harmless(_of(self).text(self.__traceback__))

    def __repr__(self) -> str:
        args = self.args
        shown = f"({args[0]!r})" if len(args) == 1 else repr(args)
        return type(self).__name__ + shown

    def _repr_pretty_(self, printer: "Any", cycle: bool) -> None:
        """Show in IPython what it shows of any exception."""
        printer.text(f"{type(self).__module__}.{self!r}")

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows in place of all frames."""
        from ._notebook import render

        return render(self, self)

    def __reduce__(self) -> "tuple[Any, ...]":
        return AuditDenied.from_dict, (self.to_dict(),), self.__dict__ or None


class SandboxViolation(AuditDenied, RuntimeError):
    """A denial in a process where ``install_sandbox`` has turned rules on: a `RuntimeError` too."""

    __module__ = "fastaudit_rs.sandbox_hooks"
    __slots__ = ()


class AuditWarning(RuntimeWarning):
    """The warning for a violation under a policy whose ``on_violation`` is ``'warn'``."""

    __module__ = "fastaudit_rs"


#: The bits of a number that JSON has: Python writes no more than 4,300 digits.
_BITS = 10_000


def _in_json(given: "Any") -> "Any":
    """The arguments of an event, with longer numbers in hexadecimal."""
    if isinstance(given, list):
        return [_in_json(one) for one in given]
    if isinstance(given, dict):
        return {key: _in_json(one) for key, one in given.items()}
    is_long = isinstance(given, int) and given.bit_length() > _BITS
    return hex(given) if is_long else given


def _of(denied: AuditDenied) -> _Denial:
    """Return the guard's notes; only the message for an exception that other code raised."""
    try:
        return denied._denial
    except AttributeError:
        return _Denial(str(denied.args[0]) if denied.args else "")


# The exception for errors of tools that are not Python's own.


class ToolError(RuntimeError):
    """A tool raised an exception of a class that is not Python's own, which is handed over as data.

    Attributes:
        tool: The name of the tool.
        kind: The qualified name of the exception's class.
    """

    __module__ = "fastaudit_rs"

    tool: str = ""
    kind: str = ""
