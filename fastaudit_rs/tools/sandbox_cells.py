"""The magic ``%%sandbox``: a cell in a sandbox, whose names last to the next such cell."""

import argparse
import asyncio
import base64
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand
from IPython.display import display

from .. import SandboxError
from .._notebook import framed, image_of, in_lines
from .._text import harmless, written
from ..results import Result, is_displayed, untold
from ..sessions.pieces import Output
from .denials import lines
from .options import (
    SANDBOX,
    allowances,
    lasting,
    limits_of,
    line_of,
    magic_parser,
    open_sandbox,
    sandbox_rules,
    words_of,
)

if TYPE_CHECKING:
    from ..sandbox.host.session import SandboxSession

#: The time between two looks for Ctrl-C, in seconds.
LOOK = 0.05

#: The class of a denial, as a result names it.
DENIED = "fastaudit_rs.AuditDenied"


class SandboxCellError(Exception):
    """The error of a cell in a sandbox: its text is that of the sandbox."""

    def __init__(self, shown: list[str]) -> None:
        super().__init__(shown[-1] if shown else "")
        self._shown = shown

    def _render_traceback_(self) -> list[str]:
        return self._shown


class Held:
    """A sandbox, its session, and the options that it began with."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        policy, limits = sandbox_rules(options)
        # The time is that of a cell.
        rules = policy, replace(limits, wall_seconds=None)
        #: The line that begins another one with the same permissions.
        self.again = line_of(f"{SANDBOX} --reset", options)
        self.sandbox = open_sandbox(rules, self.again)
        try:
            self._link([*options.write, *options.read])
            self.session = self.sandbox.session()
        except BaseException:
            self.sandbox.close()
            raise

    def _link(self, paths: list[str]) -> None:
        """Have code find the relative paths of the options, though it begins elsewhere."""
        for path in map(os.path.normpath, paths):
            link, place = self.sandbox.directory / path, os.path.abspath(path)
            is_below = path.split(os.sep)[0] not in ("", os.curdir, os.pardir)
            if is_below and os.path.exists(place) and not os.path.lexists(link):
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(place)

    def fits(self, options: argparse.Namespace) -> bool:
        asked = lasting(options)
        return not any(asked.values()) or asked == lasting(self.options)


@magics_class
class SandboxMagics(Magics):
    """The magics ``%%sandbox`` and ``%sandbox``."""

    held: Held | None = None

    @no_var_expand
    @line_cell_magic
    def sandbox(self, line: str, cell: str | None = None) -> Any:
        """Run a cell in a sandbox, in which names last to the next such cell.

        %%sandbox [OPTIONS]
            The first cell starts the sandbox with these permissions; later ones use it. -i copies
            a value in, -o copies one out: data, arrays and frames. --help explains the options.

        %sandbox
            tells what the sandbox may do, and which names it has.

        %sandbox --reset
            ends it.
        """
        magic = SANDBOX if cell is not None else SANDBOX[1:]
        try:
            options = magic_parser(SANDBOX).parse_args(words_of(line))
            if options.help:
                print(magic_parser(SANDBOX).format_help())
                return None
            if cell is None:
                self._line(options)
                return None
            return self._cell(options, cell)
        except (OSError, SandboxError, TypeError, ValueError) as error:
            is_held = isinstance(error, PermissionError) and self.held is None
            why = " (a guarded kernel starts no sandbox: use another one)" if is_held else ""
            raise UsageError(f"{magic}: {error}{why}") from error

    def _line(self, options: argparse.Namespace) -> None:
        if options.reset:
            self.end()
        elif self.held is None:
            print("off")
        else:
            held = self.held
            own = "It has a directory of its own, where it begins, and reads Python's files."
            print(f"{own} Else it may {allowances(held.sandbox.policy)}.")
            print(f"names: {', '.join(held.session.names) or 'none'}")

    def end(self) -> None:
        held, self.held = self.held, None
        if held is not None:
            held.sandbox.close()

    def _cell(self, options: argparse.Namespace, cell: str) -> Any:
        seconds = limits_of(options).wall_seconds
        space: dict[str, object] = self.shell.user_ns  # type: ignore[union-attr]
        for name in options.i:
            if name not in space:
                raise ValueError(f"-i {name}: the notebook has no such name")
        if options.reset:
            self.end()
        held = self.held
        if held is None:
            held = self.held = Held(options)
        elif not held.fits(options):
            raise ValueError(
                f"the sandbox began as {line_of(SANDBOX, held.options)}: --reset begins another"
            )
        # Lines are counted from that of the magic, as in the notebook.
        code = f"\n{cell}"
        variables = {name: space[name] for name in options.i}
        try:
            result = run(held.session, code, variables, seconds)
        except SandboxError as error:
            raise SandboxError(f"{error}\n{held.again} begins anew") from error
        value = result.value
        # A frame or an array is the host's own, with its own display.
        is_whole = value is not None and not isinstance(value, str)
        show(result, code, written(value) if is_whole else None)
        for name in options.o:
            try:
                space[name] = held.session.get(name)
            except KeyError:
                raise ValueError(f"-o {name}: the sandbox has no such name") from None
        return value if is_whole or not is_displayed(result) else None


def run(
    session: "SandboxSession", code: str, variables: dict[str, object], seconds: float | None
) -> Result:
    """Run a step, and print its output as it comes. Ctrl-C interrupts it.

    The thread of the cell prints, so that a notebook shows the output below it; its event loop is
    the kernel's, so that the step is followed in another one.
    """
    pieces: SimpleQueue[Output | None] = SimpleQueue()

    async def follow() -> Result:
        stream = session.stream(code, variables=variables, timeout=seconds)
        async for output in stream:
            pieces.put(output)
        return stream.result

    with ThreadPoolExecutor(1) as pool:
        followed = pool.submit(lambda: asyncio.run(follow()))
        followed.add_done_callback(lambda _: pieces.put(None))
        while True:
            try:
                output = pieces.get(timeout=LOOK)
                if output is None:
                    break
                stream = sys.stdout if output.name == "stdout" else sys.stderr
                stream.write(output.text)
                stream.flush()
            except Empty:
                pass
            except KeyboardInterrupt:
                session.interrupt()
    return followed.result()


def show(result: Result, cell: str, value: str | None = None) -> None:
    """Show what a step displayed, and what was denied; raise `SandboxCellError` if it failed."""
    for shown in result.display:
        plain = shown.get("text/plain")
        if plain is not None and plain == value:
            continue
        bundle = {"text/plain": harmless(plain) if isinstance(plain, str) else "(displayed)"}
        if (image := image_of(shown)) is not None:
            bundle["image/png"] = base64.b64encode(image).decode()
        else:
            # Markup of the code's is shown without scripts.
            bundle["text/html"] = framed(shown)
        display(bundle, raw=True)
    for line in lines(
        untold(result), place_of=lambda denied: _place(denied.place), head="denied: "
    ):
        print(line, file=sys.stderr)
    if not result.success:
        raise SandboxCellError([harmless(line) for line in _failure(result, cell)])


def _failure(result: Result, cell: str) -> list[str]:
    error = result.error
    if error is None:
        return [f"The cell was ended: {result.killed_by or f'exit status {result.returncode}'}"]
    denied = result.violations[-1] if result.violations else None
    if denied is not None and denied.message in (error.traceback or str(error)):
        # Of a library that raised another error for it the frames are left out, as in a cell.
        raised = "" if error.kind == DENIED else f"{error.kind.rpartition('.')[2]} from "
        found = [f"{raised}AuditDenied: {denied.message}"]
        code = cell.splitlines()
        if error.line is not None and 0 < error.line <= len(code):
            found += [f"  line {error.line}", f"    {code[error.line - 1].strip()}"]
        return in_lines(denied, found)
    found = (error.traceback or str(error)).splitlines()
    if result.killed_by == "wall_seconds":
        found.append("(It took longer than --timeout.)")
    elif result.killed_by == "memory":
        found.append("(It used more than --memory, which is 2G by default.)")
    elif result.killed_by not in (None, "interrupt"):
        found.append(f"(It was ended by the limit {result.killed_by}.)")
    return found


def _place(place: str | None) -> str | None:
    """The place of a denial in a cell, as ``line 3``."""
    file, _, line = (place or "").rpartition(":")
    return f"line {line}" if file.startswith("<step") else place
