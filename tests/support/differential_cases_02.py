"""The same as `differential_cases.py` under the rules of fastaudit 0.2.

`DIFFERENCES` are those from 0.2.10 in the section "Verdicts" of `docs/compatibility.md`.
"""

import os

import differential_cases as of_01
from differential_cases import JUDGED, SHAPES, Case, as_expected, has_relative_text, is_only, text

# Events that CPython raises in place of those that 0.2.10 names, and harmless ones.
HARMLESS = """
sys.set_asyncgen_hook_finalizer sys.set_asyncgen_hook_firstiter ctypes.create_string_buffer
ctypes.create_unicode_buffer ctypes.get_errno ctypes.set_errno
""".split()

REMOVING = ["os._clearenv", "os.unsetenv"]
ENVIRONMENT = ["os.putenv", *REMOVING]

# Of these the first argument is looked at.
NEED_ONE = ["os.putenv", "os.unsetenv", "_thread.start_joinable_thread", "_thread.start_new_thread"]

OTHERS = """
audit_perms.add_imports audit_perms.anything builtins.input cpython.run_interactivehook
ensurepip.bootstrap exec fcntl.lockf fcntl. ftplib.connect gc.get_objects gc glob.glob
http.client.connect http.client.send imaplib.open marshal.loads nntplib.connect os._clearenv
os.forkpty os.utime pathlib.Path.walk poplib.putline resource.setrlimit setopencodehook
smtplib.send socket.__new__ socket.connect socket.getaddrinfo socket.sendto
sqlite3.enable_load_extension sys._current_frames sys.set_asyncgen_hooks_firstiter sys.settrace
syslog.syslog telnetlib.Telnet.open time.sleep urllib.Request webbrowser.open winreg.OpenKey
winreg.OpenKey/result
""".split()

EVENTS = sorted({*of_01.EVENTS, *HARMLESS, *ENVIRONMENT, *OTHERS})

SENSITIVE = """
PATH LD_LIBRARY_PATH DYLD_LIBRARY_PATH DYLD_INSERT_LIBRARIES VIRTUAL_ENV CONDA_PREFIX HOME USER
LOGNAME SHELL TMPDIR TEMP TMP
""".split()

VARIABLES = [*SENSITIVE, "PYTHONPATH", "PIP_X", "UV_Y", "uv_z", "Path", "PATHS", "LD_PRELOAD", "MY"]

SHAPES_02 = {
    **SHAPES,
    "os.putenv": ["variable", "text"],
    "os.unsetenv": ["variable"],
    "fastaudit.call": ["text", "text", "text"],
}


class Case02(Case):
    """A request and both verdicts, with what the differences ask of them."""

    def __init__(self, *args):
        super().__init__(*args)
        if self.event in NEED_ONE and not self.args:
            # Whatever else is odd about it.
            self.oddities = {"lacking"}
        if self.original != ["ValueError", "no repr"]:
            # 0.2.10 shows arguments only where it denies.
            self.oddities.discard("unshowable")

    @property
    def too_short(self):
        return (self.event in NEED_ONE and not self.args) or super().too_short

    @property
    def bound(self):
        return self.blocked

    @property
    def blocked(self):
        if self.event == "fastaudit.call":
            self.args = self.args[:2]
        return super().blocked

    def entry(self, index):
        """The entry that a path names; `None` for what is no path, and where it has no name."""
        directory, name = os.path.split(text(self.arg(index)) or "")
        resolved = self.resolve(directory or ".", self.start(index))
        if resolved is None or name in ("", ".", ".."):
            return None
        return os.path.join(resolved, name)

    def directory_is_approved(self, index):
        return super().directory_is_approved(index) or self.entry(index) in self.roots

    def file_is_approved(self, index):
        landing = self.resolve(text(self.arg(index)), self.start(index))
        return super().file_is_approved(index) or landing in self.roots

    def directory_of_link_is_approved(self):
        return super().directory_of_link_is_approved() or self.entry(0) in self.roots

    def lands_inside(self, index):
        return self.contains(self.resolve(text(self.arg(index)), self.start(index)))

    @property
    def expected(self):
        if self.event in HARMLESS or self.event == "import":
            return None
        if self.event == "os._clearenv" or self.opens_own_program:
            return None
        if self.event in ENVIRONMENT:
            if self.event == "os.unsetenv" and self.arg(0)[0] in ("text", "bytes"):
                return None
            name = (text(self.arg(0)) or "").upper()
            prefixes = ("PYTHON", "PIP_", "UV_")
            is_free = text(self.arg(0)) is not None and name not in SENSITIVE
            return None if is_free and not name.startswith(prefixes) else self.blocked
        if self.event not in JUDGED and self.event not in ("os.chdir", "object.__setattr__"):
            # The original's word on the other events decides.
            return self.blocked if self.original is None or self.too_short else self.shown
        return super().expected

    @property
    def shown(self):
        """The verdict of the original, with what it could not show."""
        if self.original[0] == "PermissionError":
            return self.original
        return self.blocked


def unless_harmless(applies):
    return lambda case: case.event not in HARMLESS and applies(case)


def denies_another_path(case):
    """Ours denies a path, and no difference of 0.1.0 says why."""
    return (
        case.ours is not None
        and case.is_plain_below
        and case.event in JUDGED
        and case.event not in ("open", "sqlite3.connect")
        and as_expected(case)
        and not of_01.DIFFERENCES["unpack-archive"](case)
        and not of_01.DIFFERENCES["landing"](case)
    )


DIFFERENCES = {
    **{
        name: unless_harmless(applies)
        for name, applies in of_01.DIFFERENCES.items()
        if name not in ("root-as-directory", "attributes", "utime", "unix-socket")
    },
    "attributes": lambda case: (
        is_only(case)
        and case.loosens
        and case.event == "object.__setattr__"
        and case.arg(1)[1] == "__type_params__"
    ),
    "harmless-event": lambda case: (
        case.event in HARMLESS and case.ours is None and case.original is not None
    ),
    "removed-variable": lambda case: (
        case.event in REMOVING
        and case.loosens
        and not (case.under_top and case.is_plain)
        and case.expected is None
        # It has odd arguments, which the other difference is about.
        and not any(applies(case) for applies in of_01.DIFFERENCES.values())
    ),
    "own-path": lambda case: (
        denies_another_path(case)
        and "liar" not in {case.arg(0)[0], case.arg(1)[0]}
        and any(case.lands_inside(index) for index in case.judged)
    ),
    "asked-twice": lambda case: (
        denies_another_path(case) and "liar" in {kind for kind, _ in case.args}
    ),
}


def explanations(request, original, ours, tree):
    case = Case02(request, original, ours, tree)
    return [name for name, applies in DIFFERENCES.items() if applies(case)]


__all__ = ["DIFFERENCES", "EVENTS", "SHAPES_02", "VARIABLES", "explanations", "has_relative_text"]
