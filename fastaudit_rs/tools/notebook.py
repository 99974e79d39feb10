"""The extension for IPython and Jupyter: ``%load_ext fastaudit_rs``.

``%%audit`` guards one cell, ``%audit on`` each one from then on. It guards the code of the cell
alone: IPython itself compiles cells, keeps the history, completes names, shows figures and
tracebacks outside of the guard. For that the extension stands in for the shell's ``run_code``,
which runs a piece of a cell, and an input transformer takes the line ``%%audit`` off, so that the
rest is a cell like any other: with ``await``, other magics and the same line numbers.
"""

import argparse
import contextlib
import json
import re
import sys
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from functools import partial
from traceback import walk_tb
from types import CodeType, TracebackType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from IPython import get_ipython
from IPython.core.error import UsageError
from IPython.core.inputtransformer2 import leading_empty_lines, leading_indent
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand
from IPython.display import display

from .. import AuditDenied, Guard, Recording
from .._native import AuditPerms, Observer, _TemporaryFiles
from .._notebook import cell_of, render
from . import asking, denials
from .cell_lines import is_control, own_line, show_own_line, take_off
from .cell_programs import CellPrograms
from .options import (
    AUDIT,
    VERBS,
    allowances,
    asks_for_help,
    completions,
    line_of,
    magic_parser,
    options_of,
    policy_of,
    words_of,
    would_allow,
)
from .sandbox_cells import SandboxMagics
from .summary import summary_of, touched_of

KEPT = 20

#: The code that runs in place of a piece of a cell. It can be awaited wherever the piece could.
RUN = compile(f"__import__({__name__!r}, fromlist=['run_piece']).run_piece()", "<audit>", "eval")


#: The answer of a kernel of ``fastaudit-rs kernel`` to magics that would change its guard.
FIXED = "this kernel guards each cell, and its policy stays as it is"

#: The temporary directory of all cells: the next cell finds the files of the one before.
_temporary_files = _TemporaryFiles()


class Permissions:
    """The permissions in the options of a line, which begins with these words."""

    def __init__(self, words: str, options: argparse.Namespace) -> None:
        self.words = words
        self.options = options
        try:
            self.policy = policy_of(options)
            self.line = line_of(words, options)
            self.make = self._guards()
        except (OSError, ValueError) as error:
            raise UsageError(f"{words}: {error}") from error
        self.make._share(_temporary_files)

    @classmethod
    def of_line(cls, magic: str, line: str) -> "Permissions":
        try:
            return cls(magic, magic_parser(AUDIT, magic).parse_args(words_of(line)))
        except ValueError as error:
            raise UsageError(f"{magic}: {error}") from error

    def _guards(self) -> Observer | AuditPerms:
        options, policy = self.options, self.policy._told_in("options", line=self.line)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            if options.record:
                made: Observer | AuditPerms = policy.observe()
            else:
                shell, person = get_ipython(), None
                if options.ask:
                    where = partial(place_of, shell)
                    person = asking.frontend(shell, options.approvals, where)
                on_ask = asking.on_ask(options, person)
                made = policy.guard(on_denied=tell_late, on_ask=on_ask)
        for warning in warned:
            text = str(warning.message).removeprefix("fastaudit_rs: ")
            print(f"{self.words}: {text}", file=sys.stderr)
        return made

    def held(self) -> str:
        if self.options.record:
            return "Cells are recorded from now on: nothing is stopped."
        return f"Cells are guarded from now on: they may {allowances(self.policy)}."

    def guard(self) -> Guard | Recording:
        return self.make()._keep()


class AuditOn:
    """The guard of each cell since ``%audit on``, or of all cells of a kernel."""

    def __init__(self, permissions: Permissions, is_fixed: bool = False) -> None:
        self.permissions = permissions
        self.is_fixed = is_fixed
        self.cells = 0
        self.denied = 0
        self.last: deque[AuditDenied] = deque(maxlen=KEPT)


class Cell:
    def __init__(self, own: str | None, body: str, session: AuditOn | None) -> None:
        """Make guards, the session's and its own: new ones, as cells can run side by side."""
        self.own = own
        self.session = session
        self.guards: list[tuple[Permissions, Guard | Recording]] = []
        self.error: UsageError | None = None
        #: True if only its tasks and threads go on.
        self.is_over = False
        if session is not None:
            session.cells += 1
            self.guards.append((session.permissions, session.permissions.guard()))
        if own is None:
            return
        try:
            permissions = Permissions.of_line(AUDIT, own)
            if not body.strip():
                raise UsageError(f"{AUDIT} guards the cell below it, which is empty")
            if self.guards and isinstance(self.guards[0][1], Guard):
                # No guard is entered under another one: it would take its place.
                held = f"{self.guards[0][0].line} guards this cell already: %audit off ends that"
                raise UsageError(FIXED if session is not None and session.is_fixed else held)
            self.guards.append((permissions, permissions.guard()))
        except UsageError as error:
            self.error = error

    @contextlib.contextmanager
    def noting(self) -> Generator[None]:
        """Note for the session the denials in a piece of the cell."""
        guard = self.guards[0][1]
        if self.session is None or not isinstance(guard, Guard):
            yield
            return
        before = guard.violation_count
        try:
            yield
        finally:
            self.session.denied += guard.violation_count - before
            self.session.last.extend(guard.violations[before:])

    def show_recorded(self) -> None:
        for permissions, recording in self.guards:
            if not isinstance(recording, Recording):
                continue
            if permissions.options.all:
                text, page, rest = recording.summary(), recording._repr_html_(), ""
            else:
                effects = json.loads(recording.to_json())["effects"]
                summary = summary_of(touched_of(entry, entry["call_chain"]) for entry in effects)
                text, page = "\n".join(summary.lines()), summary.page()
                rest = summary.rest(f"{permissions.words} --record --all")
            display({"text/plain": text, "text/html": page}, raw=True)
            if rest:
                print(rest)
            options = options_of(recording, permissions.options)
            needed = would_allow(recording.never_allowed, options, permissions.words)
            if needed is not None:
                print(needed)


class Piece(NamedTuple):
    """A piece of a cell: IPython runs each statement of its own."""

    cell: Cell
    code: CodeType
    is_async: bool
    names: tuple[dict[str, Any], dict[str, Any]]

    async def run(self) -> None:
        if self.cell.error is not None:
            raise self.cell.error
        guards = [guard for _, guard in self.cell.guards]
        inner = guards[1] if len(guards) > 1 else contextlib.nullcontext()
        with self.cell.noting(), guards[0], inner:
            if self.is_async:
                await eval(self.code, *self.names)
            else:
                exec(self.code, *self.names)


_loaded: WeakKeyDictionary[InteractiveShell, "AuditMagics"] = WeakKeyDictionary()
_piece: ContextVar[Piece | None] = ContextVar("fastaudit_rs_piece", default=None)


def tell_late(denied: AuditDenied) -> None:
    """Tell of a denial in a task or a thread that goes on after its cell: nothing else shows it."""
    shell, piece = get_ipython(), _piece.get()
    magics = _loaded.get(shell)
    # A thread has no piece: its denials are told with those of the cell that runs.
    if magics is None or (bool(magics._cells) if piece is None else not piece.cell.is_over):
        return
    print(f"denied: {denials.in_one_line(denied, place=place_of(shell, denied))}", file=sys.stderr)
    session = magics.session if piece is None else piece.cell.session
    if session is not None:
        session.denied += 1
    own = magics._denied if session is None else session.last
    own.append(denied._denial.exception())


def place_of(shell: InteractiveShell, denied: AuditDenied) -> str | None:
    """Return where it was denied: in which line of which cell."""
    file, _, line = (denied.place or "").rpartition(":")
    cell = cell_of(shell, file)
    return denials.place_of(denied) if cell is None else f"{cell}, line {line}"


def run_piece() -> Coroutine[Any, Any, None]:
    piece = _piece.get()
    if piece is None:
        raise RuntimeError("there is no cell to run here")
    return piece.run()


@magics_class
class AuditMagics(Magics):
    """The magic ``audit``, and the parts of the shell that it needs."""

    session: AuditOn | None = None

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._cells: WeakKeyDictionary[ExecutionResult, Cell] = WeakKeyDictionary()
        self._ip = shell
        self._sandbox = SandboxMagics(shell)
        self._run_code: Callable[..., Coroutine[Any, Any, bool]] = shell.run_code
        self._showtraceback: Callable[..., None] = shell.showtraceback
        self._programs = CellPrograms(shell, lambda: _piece.get() is not None)
        #: Denials of the last cell with guards.
        self._denied: list[AuditDenied] = []

    def begin(self) -> None:
        shell = self._ip
        shell.register_magics(self)
        shell.register_magics(self._sandbox)
        shell.input_transformers_cleanup.append(take_off)
        vars(shell).update(run_code=self.run_code, showtraceback=self.showtraceback)
        if hasattr(shell, "kernel"):
            vars(shell).update(system=self._programs.system, getoutput=self._programs.getoutput)
        shell.events.register("post_run_cell", self.after_cell)
        # IPython has them since 8.6.
        getattr(shell.Completer, "custom_matchers", []).append(complete)

    def end(self) -> None:
        shell = self._ip
        shell.input_transformers_cleanup.remove(take_off)
        for name in ("run_code", "showtraceback", "system", "getoutput"):
            vars(shell).pop(name, None)
        shell.events.unregister("post_run_cell", self.after_cell)
        getattr(shell.Completer, "custom_matchers", [complete]).remove(complete)
        for magics in shell.magics_manager.magics.values():
            magics.pop("audit", None)
            magics.pop("sandbox", None)
        self._sandbox.end()

    @no_var_expand
    @line_cell_magic
    def audit(self, line: str, cell: str | None = None) -> None:
        """Guard code, so that it does no accidental damage.

        %%audit [OPTIONS]
            guards the cell: it writes, reaches and starts nothing but what the options name, such
            as --write DIR. 'any' stands for all; --help explains them.

        %audit on [OPTIONS]
            guards each cell from then on.

        %audit off
            ends that.

        %audit
            tells whether cells are guarded, and what was denied.
        """
        verb, _, rest = line.partition(" ")
        piece = _piece.get()
        if cell is None and asks_for_help(line):
            print(magic_parser(AUDIT, AUDIT if verb == "cell" else "%audit on").format_help())
        elif cell is not None or verb == "cell":
            if cell is not None or piece is None or piece.cell.own != rest.strip():
                raise UsageError(f"{AUDIT} has to be the first line of a cell")
        elif not line.strip():
            print(self.state())
        elif verb not in VERBS or (verb == "off" and rest.strip()):
            raise UsageError(f"%audit takes 'on', 'off' or nothing; {AUDIT} guards a cell")
        elif piece is not None:
            raise UsageError(f"%audit {verb} has to be alone in its cell")
        elif self.session is not None and self.session.is_fixed:
            raise UsageError(f"%audit {verb}: {FIXED}")
        else:
            was_on = self.session is not None
            self.session = AuditOn(Permissions.of_line("%audit on", rest)) if verb == "on" else None
            if self.session is not None:
                print(f"{self.session.permissions.held()} %audit off ends that.")
            else:
                print("Cells are guarded no longer." if was_on else "Cells were not guarded.")

    def state(self) -> str:
        session = self.session
        if session is None:
            lines, denied = ["off"], self._denied
            if denied:
                lines.append(f"{len(denied)} operations denied in the last guarded cell")
        else:
            denied = list(session.last)
            lines = [
                session.permissions.line.removeprefix("%audit "),
                f"{session.cells} cells guarded, {session.denied} operations denied",
            ]
        shown = self._untold(denied, most=KEPT)
        return "\n".join([*lines, *(f"    {line}" for line in shown)])

    async def run_code(
        self, code_obj: CodeType, result: ExecutionResult | None = None, *, async_: bool = False
    ) -> bool:
        """Run a piece of a cell, under the guards that the cell has."""
        cell = self._cell_of(result)
        if cell is None:
            return await self._run_code(code_obj, result, async_=async_)
        if cell.own is not None:
            show_own_line(code_obj.co_filename, cell.own)
        names = self._ip.user_global_ns, self._ip.user_ns
        token = _piece.set(Piece(cell, code_obj, async_, names))
        try:
            return await self._run_code(RUN, result, async_=True)
        finally:
            _piece.reset(token)

    def _cell_of(self, result: ExecutionResult | None) -> Cell | None:
        if result is None:
            return None if self.session is None else Cell(None, "", self.session)
        if result in self._cells:
            return self._cells[result]
        raw = result.info.raw_cell if result.info is not None else ""
        lines = leading_indent(leading_empty_lines(raw.splitlines(keepends=True)))
        own = own_line(lines)
        if (self.session is None and own is None) or is_control(raw, own):
            return None
        if re.search(r"^\s*%%(?!audit|sandbox)", raw, re.MULTILINE):
            self._programs.start_thread()
        cell = Cell(own, "".join(lines[1:]), self.session)
        self._cells[result] = cell
        return cell

    def showtraceback(self, *args: Any, **options: Any) -> None:
        """Show an exception without the frames that are of the guard."""
        given = args[0] if args else options.get("exc_tuple")
        error = sys.exc_info()[1] if given is None else given[1]
        if isinstance(error, BaseException):
            error.__traceback__ = _without_own(error.__traceback__)
            short = _render_wrapped(self._ip, error)
            if short is not None:
                self._ip._showtraceback(type(error), error, short)
                return
        self._showtraceback(*args, **options)

    def after_cell(self, result: ExecutionResult) -> None:
        """Show the recording, and the denials without an error that says so."""
        cell = self._cells.pop(result, None)
        if cell is None:
            return
        cell.is_over = True
        cell.show_recorded()
        guards = (guard for _, guard in cell.guards if isinstance(guard, Guard))
        self._denied = [denied for guard in guards for denied in guard.violations]
        error = result.error_before_exec or result.error_in_exec
        more = "; %audit shows them"
        for line in self._untold(self._denied, error, head="denied: ", more=more):
            print(line, file=sys.stderr)

    def _untold(self, violations: list[AuditDenied], *error: Any, **options: Any) -> list[str]:
        """A line for each place of a denial that the error does not show: `denials.lines`."""
        where = partial(place_of, self._ip)
        return denials.lines(violations, *error, place_of=where, **options)


def _without_own(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and _is_own(traceback):
        traceback = traceback.tb_next
    part = traceback
    while part is not None:
        while part.tb_next is not None and _is_own(part.tb_next):
            part.tb_next = part.tb_next.tb_next
        part = part.tb_next
    return traceback


def _is_own(part: TracebackType) -> bool:
    return part.tb_frame.f_code in (RUN, Piece.run.__code__)


def _render_wrapped(shell: InteractiveShell, error: BaseException | None) -> list[str] | None:
    """The lines for an error that a library raised for a denial; ``None`` for any other.

    An error that the user's own code raised on a denial shows its frames as usual.
    """
    if isinstance(error, AuditDenied) or not isinstance(error, Exception):
        return None
    denied = denials.denial_in(error)
    if denied is None or shell.InteractiveTB.mode == "Verbose":
        return None
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    if not frames:
        return None
    file = frames[-1].f_code.co_filename
    own = (denied.place or "").rpartition(":")[0]
    # What native code raises has no frame of its own.
    if (file == own or cell_of(shell, file) is not None) and denied.library is None:
        return None
    return render(denied, error)


def complete(context: Any) -> Any:
    """Complete the line of a magic, with no names of Python among its options."""
    from IPython.core.completer import SimpleCompletion

    words = completions(context.text_until_cursor, context.token)
    found = [SimpleCompletion(text=word, type="magic") for word in words]
    return {"completions": found, "suppress": bool(found)}


complete.matcher_api_version = 2  # type: ignore[attr-defined]
complete.matcher_identifier = "fastaudit_rs"  # type: ignore[attr-defined]
complete.matcher_priority = 0  # type: ignore[attr-defined]


def load_ipython_extension(ipython: InteractiveShell) -> None:
    """Add the magics ``%audit`` and ``%%audit``: ``%load_ext fastaudit_rs``.

    ``docs/notebook.md`` describes the extension.
    """
    if ipython not in _loaded:
        _loaded[ipython] = magics = AuditMagics(ipython)
        magics.begin()


def unload_ipython_extension(ipython: InteractiveShell) -> None:
    """Take them away again: ``%unload_ext fastaudit_rs``."""
    if _piece.get() is not None:
        raise UsageError("%unload_ext fastaudit_rs has to be alone in its cell")
    magics = _loaded.get(ipython)
    if magics is not None:
        if magics.session is not None and magics.session.is_fixed:
            raise UsageError(f"%unload_ext fastaudit_rs: {FIXED}")
        del _loaded[ipython]
        magics.end()


def hold(ipython: InteractiveShell, permissions: Permissions) -> None:
    """Guard each cell of a shell with these permissions, for good."""
    _loaded[ipython].session = AuditOn(permissions, is_fixed=True)
