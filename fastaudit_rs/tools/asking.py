"""Questions to a person before an operation is denied: on the terminal, or in a notebook."""

import argparse
import os
import threading
from collections.abc import Callable
from typing import Any

from .. import AuditDenied
from .._native import _merged_approvals
from .._text import printable
from ..approvals import Answer, Approvals
from .denials import operation, place_of

#: The terminal of the process, wherever its standard streams lead.
TERMINAL = "/dev/tty"

#: Answers that are kept, the one that reaches further first.
_KEPT: tuple[Answer, ...] = ("pattern", "guard")

#: The beginning of a question, by the effect of the operation; its subject follows.
_VERBS = {
    "write": "write",
    "read": "read",
    "directory": "enter",
    "process": "start",
    "network": "reach",
    "native": "call",
    "import": "import",
    "env": "set",
}


def subject(denied: AuditDenied) -> str:
    """Describe the operation: ``write /srv/out``."""
    first = denied.event_args[0] if denied.event_args else None
    if denied.event == "os.symlink" and denied.resolved is not None:
        if denied.link is not None:
            return printable(f"make {denied.link} a link to {denied.resolved}")
        return printable(f"make {denied.resolved} a link with the text {first!r}")
    named = denied.resolved or denied.path or denied.command or denied.host or denied.callee
    if named is None and denied.effect in ("import", "env") and isinstance(first, (str, bytes)):
        named = os.fsdecode(first)
    verb = _VERBS.get(denied.effect or "")
    if denied.effect == "thread":
        return "start a thread"
    if verb is None or named is None:
        return printable(operation(denied))
    return printable(f"{verb} {named}")


def name_of(denied: AuditDenied) -> str | None:
    """Return the name that the program gave, if it names another place than it leads to."""
    name, place = denied.path, denied.resolved
    if name is None or place is None:
        return None
    plain = os.path.normpath(name)
    is_below = not os.path.isabs(plain) and plain.split(os.sep)[0] != os.pardir
    is_same = plain == place or (is_below and place.endswith(os.sep + plain))
    return None if is_same else name


def added(denied: AuditDenied, answer: Answer) -> str:
    """Return the fields of a policy that an answer adds, as TOML in one line."""
    lines = _merged_approvals("", denied.approval(answer) or {}).splitlines()
    return printable(", ".join(line for line in lines if line and not line.startswith("#")))


def ask(
    denied: AuditDenied,
    answered: Callable[[str], str | None],
    file: str | None,
    place: str | None,
    ends: str = "Ctrl-C ends the program too",
) -> Answer:
    """Ask until there is an answer. `answered` reads a line, ``None`` at the input's end."""
    name = name_of(denied)
    #: The answer that stands for "always"; none if the denial takes no answer that is kept.
    kept: Answer | None = next((each for each in _KEPT if each in denied.answers), None)
    more = [f"by the name {name!r}"] if name is not None else []
    more += [f"at {place}"] if place is not None else []
    more += [f"the rule {denied.rule}" if denied.rule is not None else "no rule allows it"]
    answers: dict[str, Answer] = {"y": "once", "yes": "once", "n": "deny", "no": "deny"}
    keys = "[y]es once / [n]o / [?]"
    if kept is not None:
        answers |= {"a": kept, "always": kept, "v": "never", "never": "never"}
        keys = "[y]es once / [a]lways / [n]o / ne[v]er / [?]"
    about = printable(", ".join([denied.event, *more]))
    head = f"┌ The program asks to {subject(denied)}\n│ {about}\n"
    prompt = f"└ Allow it? {keys}: "
    text = head + prompt
    while True:
        line = answered(text)
        if line is None:
            return "deny"
        word = line.strip().lower()
        if word in answers:
            return answers[word]
        text = prompt
        if word == "?":
            told = _explained(denied, kept, file, ends)
            text = "".join(f"│ {line}\n" for line in told) + prompt


def _explained(denied: AuditDenied, kept: Answer | None, file: str | None, ends: str) -> list[str]:
    until = "until this ends" if file is None else f"also later: it is added to {printable(file)}"
    once = f"y: {subject(denied)}, this once"
    no = f"n: deny it (end of input does the same); {ends}"
    if kept is None:
        return [once, no]
    always = f"a: {added(denied, kept)}, {until}"
    return [once, always, no, f"v: denied without a question: {added(denied, 'never')}, {until}"]


class Terminal:
    """Asks on the terminal of this process."""

    def __init__(self, file: str | None = None) -> None:
        """Open the terminal; `OSError` if the process has none."""
        try:
            import termios
        except ImportError as error:
            raise OSError(f"this system has no {TERMINAL}") from error
        # They are looked up now: the program may replace those of the modules.
        self._get, self._set = termios.tcgetattr, termios.tcsetattr
        self._at_once, self._flush = termios.TCSANOW, termios.TCSAFLUSH
        self._lines = termios.ICANON | termios.ECHO | termios.ISIG
        self._returns = termios.ICRNL
        self._read, self._write = os.read, os.write
        self._file = file
        self._lock = threading.Lock()
        self._descriptor = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)

    def __call__(self, denied: AuditDenied) -> Answer:
        """Ask about a denial; one thread at a time."""
        with self._lock:
            return ask(denied, self._answered, self._file, place_of(denied))

    def _answered(self, text: str) -> str | None:
        before = self._get(self._descriptor)
        mode = self._get(self._descriptor)
        mode[0] |= self._returns
        mode[3] |= self._lines
        # Keys that were pressed before the question was there are no answer to it.
        self._set(self._descriptor, self._flush, mode)
        ended = True
        try:
            self._show(text)
            line = self._read(self._descriptor, 4096)
            ended = not line.endswith(b"\n")
            return line.decode("utf-8", "replace") if line else None
        finally:
            if ended:
                self._show("\n")
            self._set(self._descriptor, self._at_once, before)

    def _show(self, text: str) -> None:
        data = text.encode()
        while data:
            data = data[self._write(self._descriptor, data) :]


def frontend(
    shell: Any, file: str | None, place: Callable[[AuditDenied], str | None]
) -> Callable[[AuditDenied], Answer]:
    """Return what asks by ``input()``, of a notebook or of IPython in a terminal.

    ``place`` says in which line of which cell it was denied.
    """

    def answered(text: str) -> str | None:
        from IPython.core.error import StdinNotImplementedError

        kernel = getattr(shell, "kernel", None)
        read: Callable[[str], str] = input if kernel is None else kernel.raw_input
        try:
            return read(text)
        except EOFError:
            return None
        except StdinNotImplementedError:
            raise RuntimeError("this frontend has no way to ask") from None

    ends = "an interrupt ends the cell"
    return lambda denied: ask(denied, answered, file, place(denied), ends)


def on_ask(
    options: argparse.Namespace, person: Callable[[AuditDenied], Answer] | None
) -> Callable[[AuditDenied], object] | None:
    """Return the ``on_ask`` of these options; ``None`` if nobody is to be asked."""
    if options.approvals is not None:
        return Approvals(options.approvals, person)
    return person
