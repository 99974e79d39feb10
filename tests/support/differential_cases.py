"""The verdicts of both packages on a request of the differential test, and why they may differ.

`DIFFERENCES` are those from 0.1.0 in the section "Verdicts" of `docs/compatibility.md`. Each says
what makes the verdicts differ and what ours has to be then, worked out here by `os.path`: a wrong
verdict of ours is no difference.
"""

import os
from pathlib import PurePosixPath
from urllib.parse import parse_qsl, unquote_to_bytes

from differential_worker import DESCRIPTORS
from event_rows import BOTH, DENIED, DESTINATION, FIRST, IGNORED, ROWS

# The arguments of each event; an event that is not here has any. `dir_fd` belongs to the path in
# the same order, and for `os.symlink` to the link.
SHAPES = {
    "open": ["path|fd", "mode", "flags"],
    "os.chdir": ["path|fd"],
    "os.chmod": ["path|fd", "number", "dir_fd"],
    "os.chown": ["path|fd", "number", "number", "dir_fd"],
    "os.chflags": ["path", "number"],
    "os.link": ["path", "path", "dir_fd", "dir_fd"],
    "os.mkdir": ["path", "number", "dir_fd"],
    "os.remove": ["path", "dir_fd"],
    "os.removexattr": ["path|fd", "text"],
    "os.rename": ["path", "path", "dir_fd", "dir_fd"],
    "os.rmdir": ["path", "dir_fd"],
    "os.setxattr": ["path|fd", "text", "other", "number"],
    "os.symlink": ["path", "path", "dir_fd"],
    "os.truncate": ["path|fd", "number"],
    "os.utime": ["path|fd", "other", "other", "dir_fd"],
    "shutil.chown": ["path|fd", "other", "other"],
    "shutil.copyfile": ["path", "path"],
    "shutil.copymode": ["path", "path"],
    "shutil.copystat": ["path", "path"],
    "shutil.copytree": ["path", "path"],
    "shutil.make_archive": ["path", "text", "path", "path"],
    "shutil.move": ["path", "path"],
    "shutil.rmtree": ["path", "dir_fd"],
    "shutil.unpack_archive": ["path", "path", "other"],
    "sqlite3.connect": ["database"],
    "sqlite3.load_extension": ["number", "path"],
    "tempfile.mkdtemp": ["path"],
    "tempfile.mkstemp": ["path"],
    "object.__setattr__": ["object", "attribute", "other"],
}
UNKNOWN = [
    *IGNORED, "OPEN", "compile", "fcntl.flock", "mmap.__new__", "object.__getattr__", "os.fork",
    "os.getxattr", "os.mkdir/2", "os.walk", "pickle.find_class", "socket.bind",
    "sqlite3.connect/handle", "sqlite3.enable_load_extension", "sys._getframe",
]  # fmt: skip
EVENTS = sorted({*SHAPES, *DENIED, *FIRST, *DESTINATION, *BOTH, *UNKNOWN})

# The positions of the paths whose directory has to be approved. `os.symlink` judges its text too.
JUDGED = {
    **{row.event: row.judged for row in ROWS.values() if row.judged and not row.is_own},
    "open": (0,),
}
# The events that follow links, and the paths that events of their own will be raised for.
FOLLOWING = """
open os.chflags os.chmod os.chown os.removexattr os.setxattr os.truncate os.utime shutil.chown
sqlite3.connect sqlite3.load_extension
""".split()
PLACES = {
    *((f"shutil.copy{what}", 1) for what in ("file", "mode", "stat", "tree")),
    ("os.mkdir", 0),
    ("shutil.make_archive", 0),
    ("shutil.move", 1),
    ("shutil.unpack_archive", 0),
    ("shutil.unpack_archive", 1),
}
NEEDED = {"open": 3, "os.chdir": 1, "object.__setattr__": 2}

ORDINARY = {"__name__", "__qualname__", "__bases__", "__class__", "__defaults__", "__type_params__"}
SIGNALS = ("os.kill", "os.killpg", "signal.pidfd_send_signal", "signal.pthread_kill")
DEVICES = ("/dev/null", "/dev/stdout", "/dev/stderr")


def text(arg):
    """A path argument as `str`; `None` for others. An overridden method decides nothing."""
    kind, value = arg
    if kind == "bytes":
        return os.fsdecode(bytes.fromhex(value))
    if kind in ("overridden", "liar"):
        return value[0]
    if kind == "path":
        return str(PurePosixPath(value))
    return value if kind == "text" else None


def shown(arg):
    """The text of an argument in our messages."""
    kind, value = arg
    if kind == "path":
        return repr(PurePosixPath(value))
    if kind == "bytes":
        return repr(bytes.fromhex(value))
    if kind == "overridden":
        return repr(value[0])
    if kind == "unshowable":
        return "<Unshowable object whose repr failed>"
    if kind == "function":
        return "<function generate>"
    return f"{kind.capitalize()}()" if kind in ("liar", "failing", "index") else repr(value)


class Case:
    """A request and both verdicts, with what the differences ask of them."""

    def __init__(self, request, original, ours, tree):
        self.event = request["event"]
        self.args = [next(iter(value.items())) for value in request["args"]]
        self.gone = request["gone"]
        # The directory that the guarded code was in before it first changed it.
        self.first = request["cwd"]
        self.cwd = request["move"] or request["cwd"]
        self.original = original
        self.ours = ours
        self.tree = tree
        self.oks, self.roots = [], []
        for root in request["oks"]:
            path = text(next(iter(root.items())))
            fixed = os.path.realpath(os.path.join(self.first, path))
            self.oks.append("." if path == "." and "text" in root else fixed)
            self.roots += [fixed] if self.oks[-1] != "." else [] if self.gone else [self.cwd]
        self.loosens = original is not None and ours is None
        kinds = {kind for kind, _ in self.args}
        # The oddities of the request itself; a request has at most one.
        self.oddities = kinds & {"unshowable", "overridden", "failing", "code"}
        if self.gone:
            self.oddities.add("gone")
        if self.lacks_arguments:
            self.oddities.add("lacking")

    def arg(self, index):
        return self.args[index] if index < len(self.args) else (None, None)

    @property
    def judged(self):
        return JUDGED.get(self.event, ())

    @property
    def too_short(self):
        return len(self.args) < NEEDED.get(self.event, max((0, *(i + 1 for i in self.judged))))

    @property
    def lacks_arguments(self):
        no_flags = self.event == "open" and self.arg(1)[1] is self.arg(2)[1] is None
        return self.too_short or no_flags

    @property
    def under_top(self):
        """True if everything is approved."""
        return "/" in self.roots

    @property
    def is_descriptor(self):
        takes_one = SHAPES.get(self.event, [""])[0] == "path|fd"
        return takes_one and self.arg(0)[0] in ("number", "index")

    @property
    def descriptor_is_approved(self):
        """Tell whether the file of an open descriptor may be changed; all are open for reading."""
        kind, number = self.arg(0)
        if kind == "index":
            # It may be another number each time it is asked.
            return False
        if self.event in ("open", "os.truncate"):
            return True
        if number < 0:
            return False
        if number not in DESCRIPTORS:
            return True
        path = os.path.join(self.tree, DESCRIPTORS[number])
        return self.contains(path) if os.path.isdir(path) else self.contains(os.path.dirname(path))

    @property
    def opens_for_writing(self):
        (kind, mode), (_, flags) = self.arg(1), self.arg(2)
        if kind == "text":
            return bool(set("wax+") & set(mode))
        write = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        return mode is not None or not isinstance(flags, int) or bool(flags & write)

    def start(self, index):
        """The directory that a relative path at this position starts from; `None` without one."""
        places = [i for i, kind in enumerate(SHAPES[self.event]) if kind == "dir_fd"]
        which = 0 if self.event == "os.symlink" else index
        _, fd = self.arg(places[which]) if which < len(places) else (None, None)
        if fd in (None, -1):
            return None if self.gone else self.cwd
        return os.path.join(self.tree, DESCRIPTORS[fd]) if fd in DESCRIPTORS else None

    def is_relative(self, index):
        return text(self.arg(index)) is not None and not text(self.arg(index)).startswith("/")

    @property
    def is_open_directory(self):
        """True if the descriptor is open on a directory that may be the current one."""
        path = DESCRIPTORS.get(self.arg(0)[1])
        path = path and os.path.join(self.tree, path)
        return self.contains(path) or path == self.first

    @property
    def uses_dir_fd(self):
        """True if a path that is judged starts from another directory than the current one."""
        moved = any(
            self.is_relative(i) and self.start(i) != (None if self.gone else self.cwd)
            for i in ([1] if self.event == "os.symlink" else self.judged)
        )
        return moved and not self.is_descriptor

    def resolve(self, path, start):
        """Where a path leads, and `None` where that cannot be known."""
        if path is None or (start is None and not path.startswith("/")):
            return None
        try:
            return os.path.realpath(os.path.join(start or "/", path))
        except (OSError, ValueError):
            return None

    def contains(self, path):
        if path is None:
            return False
        return any(f"{path}/".startswith(root.rstrip("/") + "/") for root in self.roots)

    def directory_is_approved(self, index):
        """True if the directory of a path is approved, as the original judges all."""
        path = text(self.arg(index))
        directory = path if path is None else os.path.dirname(path) or "."
        return self.contains(self.resolve(directory, self.start(index)))

    def file_is_approved(self, index):
        """True if the target of a path lies in a root."""
        landing = self.resolve(text(self.arg(index)), self.start(index))
        return landing is not None and self.contains(os.path.dirname(landing))

    def entry_is_approved(self, index):
        if self.is_descriptor:
            return self.descriptor_is_approved
        if (self.event, index) in PLACES:
            return self.directory_is_approved(index)
        has_no_name = os.path.basename(text(self.arg(index)) or "") in ("", ".", "..")
        if self.event in FOLLOWING:
            landing = self.resolve(text(self.arg(index)), self.start(index))
            is_place = has_no_name and self.event != "open" and self.contains(landing)
            return is_place or self.file_is_approved(index)
        if has_no_name:
            return self.file_is_approved(index)
        follows = self.event == "os.link" and index == 0
        return self.directory_is_approved(index) and (not follows or self.file_is_approved(index))

    def link_is_approved(self):
        """True if the text of a link leads into a root from the directory of the link."""
        link, leads_to = text(self.arg(1)), text(self.arg(0))
        if not self.is_relative(0):
            landing = self.resolve(leads_to, None)
            return self.directory_of_link_is_approved() and self.contains(landing)
        beside = None if link is None else self.resolve(os.path.dirname(link), self.start(1))
        return self.contains(self.resolve(leads_to, beside))

    def directory_of_link_is_approved(self):
        """True if the directory of an absolute text is approved."""
        leads_to = text(self.arg(0))
        return leads_to is not None and self.contains(self.resolve(os.path.dirname(leads_to), None))

    @property
    def lands_elsewhere(self):
        """True if the file that is changed is not in the directory of its path."""
        if self.event == "open" and (self.is_device or self.is_root):
            return False
        if self.event == "os.symlink":
            moved = self.link_is_approved() != self.directory_of_link_is_approved()
            if moved and not self.is_relative(0):
                return True
        judged = [1] if self.event == "os.symlink" else self.judged
        return any(
            self.entry_is_approved(index) != self.directory_is_approved(index) for index in judged
        )

    def denial(self, index):
        oks = repr(tuple(self.oks))
        return ["PermissionError", f"{self.event} {shown(self.arg(index))} not in {oks}"]

    @property
    def blocked(self):
        args = ", ".join(map(shown, self.args)) + ("," if len(self.args) == 1 else "")
        message = f"Audit: {self.event} blocked in sandbox with args: ({args})"
        return ["PermissionError", message]

    @property
    def expected(self):
        """The answer that ours has to give; of databases, only for those that are plain files."""
        if self.event in ("os.link", "os.rename", "shutil.move") and len(self.args) == 1:
            return self.blocked if self.entry_is_approved(0) else self.denial(0)
        if self.event == "socket.bind":
            return self.bound
        if self.opens_own_program:
            return None
        if self.event in DENIED or self.too_short:
            return self.blocked
        if self.event == "object.__setattr__":
            ordinary = {*ORDINARY, "__doc__", "__module__"}
            return None if self.arg(1)[1] in ordinary else self.blocked
        if self.event == "os.chdir":
            whole = self.resolve(text(self.arg(0)), self.cwd)
            return None if self.contains(whole) or whole == self.first else self.denial(0)
        if self.event == "open" and (not self.opens_for_writing or self.is_device or self.is_root):
            return None
        if self.event not in JUDGED:
            return None
        for index in self.judged:
            links = self.event == "os.symlink" and index == 0
            if not (self.link_is_approved() if links else self.entry_is_approved(index)):
                return self.denial(index)
        return None

    @property
    def opens_own_program(self):
        return self.event == "ctypes.dlopen" and self.args == [("none", None)]

    @property
    def bound(self):
        """The verdict of ours on an address: the address of a Unix socket is a path."""
        if len(self.args) < 2:
            return self.blocked
        name = text(self.args[1]) if self.args[1][0] in ("text", "bytes") else None
        if name is None or name == "" or name.startswith("\0") or self.under_top:
            return None
        inside = self.contains(self.resolve(os.path.dirname(name) or ".", self.cwd))
        return None if inside else self.denial(1)

    @property
    def is_device(self):
        directory, name = os.path.split(text(self.arg(0)) or "")
        resolved = self.resolve(directory, None if self.gone else self.cwd)
        return resolved is not None and os.path.join(resolved, name) in DEVICES

    @property
    def is_root(self):
        """True if the path is that of a root that is a directory."""
        path = self.resolve(text(self.arg(0)), None if self.gone else self.cwd)
        return path in self.roots and os.path.isdir(path)

    @property
    def is_plain(self):
        """True if only the paths and the roots matter: no other difference has to do with it."""
        relative_link = self.event == "os.symlink" and self.is_relative(0)
        database = self.event == "sqlite3.connect" and self.opens_private_or_uri
        moved = self.uses_dir_fd or self.is_descriptor or relative_link or database
        return not (self.oddities or moved)

    @property
    def is_plain_below(self):
        """The same where not everything is approved."""
        return self.is_plain and not self.under_top

    @property
    def opens_private_or_uri(self):
        name = text(self.arg(0))
        return name is not None and (name in ("", ":memory:") or name.startswith("file:"))

    @property
    def uri_is_approved(self):
        """True if a `file:` URI may be opened, as a URI and as the file of this very name."""
        name = text(self.arg(0))
        path, _, query = name[len("file:") :].partition("#")[0].partition("?")
        if path.startswith("//"):
            path = "/" + path[2:].partition("/")[2]
        # For SQLite a NUL ends the path, the key or the value that it is in.
        path = os.fsdecode(unquote_to_bytes(os.fsencode(path)).partition(b"\0")[0])
        pairs = parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)
        pairs = [(key.partition("\0")[0], value.partition("\0")[0]) for key, value in pairs]
        mode = dict(pairs).get("mode")
        directory = self.resolve(os.path.dirname(path), self.cwd)
        if not (mode in ("memory", "ro") or path in ("", ":memory:") or self.contains(directory)):
            return False
        literal = self.resolve(os.path.dirname(name), self.cwd)
        return "/" not in name or not os.path.lexists(literal) or self.contains(literal)


def as_expected(case):
    """True if ours gives the answer that it has to."""
    return case.ours == case.expected


def is_only(case, *oddities):
    """True if these are the oddities of the request."""
    return case.oddities == set(oddities)


def lacks_directory(case):
    """The working directory is gone, which alone stops the original."""
    return (
        is_only(case, "gone")
        and (case.original or [None])[0] == "FileNotFoundError"
        and as_expected(case)
    )


def is_answered_anew(case):
    """A path-like object may answer otherwise when the operation asks it for its path again."""
    return (
        case.event in ("open", "sqlite3.connect")
        and (case.original is None or case.original[0] == "FileNotFoundError")
        and not lacks_directory(case)
        and case.arg(0)[0] == "liar"
        and case.ours == case.denial(0)
    )


def has_relative_text(case):
    return case.event == "os.symlink" and case.is_relative(0)


DIFFERENCES = {
    "dir-fd": lambda case: (
        is_only(case) and case.uses_dir_fd and not has_relative_text(case) and as_expected(case)
    ),
    "descriptor": lambda case: (
        is_only(case)
        and case.loosens
        and case.is_descriptor
        and case.event != "os.chdir"
        and as_expected(case)
    ),
    "fchdir": lambda case: (
        case.loosens and case.event == "os.chdir" and case.is_descriptor and case.is_open_directory
    ),
    "root-slash": lambda case: (
        case.under_top
        and case.is_plain
        and case.event not in ("object.__setattr__", "socket.bind")
        and as_expected(case)
    ),
    "attributes": lambda case: (
        is_only(case)
        and case.loosens
        and case.event == "object.__setattr__"
        and case.arg(1)[1] in ORDINARY
    ),
    "coroutine-mark": lambda case: (
        is_only(case, "code") and case.loosens and case.arg(2)[1] == "marked"
    ),
    "standing-device": lambda case: (
        case.loosens and case.event == "open" and case.is_plain_below and case.is_device
    ),
    "root-as-directory": lambda case: (
        case.loosens and case.event == "open" and case.is_plain_below and case.is_root
    ),
    "landing": lambda case: (
        case.is_plain_below
        and case.event in JUDGED
        and case.event != "os.utime"
        and case.lands_elsewhere
        and as_expected(case)
        and not is_answered_anew(case)
    ),
    "symlink-text": lambda case: is_only(case) and has_relative_text(case) and as_expected(case),
    "unpack-archive": lambda case: (
        case.event == "shutil.unpack_archive"
        and case.is_plain_below
        and not case.entry_is_approved(0)
        and as_expected(case)
    ),
    "sqlite-private": lambda case: (
        case.loosens and case.event == "sqlite3.connect" and text(case.arg(0)) in ("", ":memory:")
    ),
    "sqlite-uri": lambda case: (
        case.event == "sqlite3.connect"
        and (text(case.arg(0)) or "").startswith("file:")
        and case.ours == (None if case.uri_is_approved else case.denial(0))
    ),
    "sqlite-path-like": is_answered_anew,
    "chdir-back": lambda case: (
        case.loosens
        and case.event == "os.chdir"
        and case.is_plain_below
        and case.resolve(text(case.arg(0)), case.cwd) == case.first
    ),
    "utime": lambda case: (
        case.event == "os.utime"
        and case.original is None
        and case.oddities <= {"gone", "unshowable"}
        and not case.uses_dir_fd
        and not (case.under_top and case.is_plain)
        and as_expected(case)
    ),
    "unix-socket": lambda case: (
        case.event == "socket.bind" and case.original is None and as_expected(case)
    ),
    "extension-modules": lambda case: (
        case.event == "import" and case.original is None and case.ours == case.blocked
    ),
    "own-program": lambda case: (
        case.opens_own_program and case.loosens and not (case.under_top and case.is_plain)
    ),
    "signal-0": lambda case: (
        case.loosens and case.event in SIGNALS and case.args[1:2] == [("number", 0)]
    ),
    "malformed-event": lambda case: (
        is_only(case, "lacking") and case.event != "socket.bind" and as_expected(case)
    ),
    "overridden-str": lambda case: is_only(case, "overridden") and as_expected(case),
    "failing-path-like": lambda case: is_only(case, "failing") and as_expected(case),
    "failing-repr": lambda case: (
        is_only(case, "unshowable")
        and case.original == ["ValueError", "no repr"]
        and as_expected(case)
    ),
    "deleted-directory": lacks_directory,
}


def explanations(request, original, ours, tree):
    case = Case(request, original, ours, tree)
    return [name for name, applies in DIFFERENCES.items() if applies(case)]
