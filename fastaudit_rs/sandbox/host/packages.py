"""Packages that the host installs with pip for the code of a sandbox."""

import contextlib
import glob
import importlib.metadata
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from typing import Any

from ... import Policy
from ...sessions.cells import INSTALL
from ...sessions.errors import SandboxError
from ...sessions.typed import Typed
from ..install import Install, name_of, normal, requirement
from . import copies
from .files import remove_own

#: The packages that one command may name, and the characters of an error that are told.
MOST, TOLD = 20, 1000

#: The program that runs pip. It starts no other one, as pip does to build a package from source;
#: takes nothing by an address that a wheel asks for: packages are those of the index; and writes in
#: some directories alone: a wheel may name a script by any path. Its arguments are the path of pip,
#: these directories as JSON, and the arguments of pip.
_PROGRAM = """
import json, os, runpy, sys
path, places, *arguments = sys.argv[1:]
PLACES = [os.path.realpath(place) + os.sep for place in json.loads(places)]
STARTS = {"subprocess.Popen", "os.posix_spawn", "os.exec", "os.fork", "os.forkpty", "os.system"}
# The argument that is the place.
WRITES = {
    **dict.fromkeys(("open", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.truncate"), 0),
    **dict.fromkeys(("os.rename", "os.link", "os.symlink"), 1),
}
ACCESS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
def refuse(event, args):
    if event in STARTS:
        raise PermissionError("nothing of a package runs: it must come as a wheel")
    if event not in WRITES or (event == "open" and not (args[2] or 0) & ACCESS):
        return
    place = args[WRITES[event]]
    if isinstance(place, (str, bytes)):
        above, name = os.path.split(os.path.abspath(os.fsdecode(place)))
        real = os.path.join(os.path.realpath(above), name)
        if real != os.devnull and not (real + os.sep).startswith(tuple(PLACES)):
            raise PermissionError(f"a package would write {real}")
sys.path[:0] = [path] if path else []
sys.argv = ["pip", *arguments]
from pip._vendor.packaging import requirements
class Named(requirements.Requirement):
    def __init__(self, text):
        super().__init__(text)
        if self.url:
            raise requirements.InvalidRequirement(f"{self.name} must come from the index")
requirements.Requirement = Named
sys.addaudithook(refuse)
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""

_OPTIONS = (
    *("--only-binary=:all:", "--no-compile", "--no-input", "--disable-pip-version-check"),
    *("--no-warn-conflicts", "--no-warn-script-location", "--quiet", "--upgrade-strategy"),
    "only-if-needed",
)

#: Options of ``%pip install`` that change nothing here.
_IDLE = {"-q", "--quiet", "-U", "--upgrade", "--no-input", "--disable-pip-version-check"}


class Packages:
    """A directory of packages, which the host fills and the code reads."""

    def __init__(self, wanted: Install, parent: str, held: Iterable[Policy]) -> None:
        """Make it in a directory where no code writes that these policies hold, and fill it."""
        _check_apart(held, [parent] if wanted.cache is None else [parent, wanted.cache])
        self._wanted = wanted
        self.begin_anew()
        copies.note(self)
        self.base = os.path.realpath(tempfile.mkdtemp(prefix="fastaudit-rs-pip-", dir=parent))
        # By this name a guard takes packages for installed: what importing them does passes.
        self.directory = os.path.join(self.base, "site-packages")
        try:
            os.mkdir(self.directory)
            if wanted.packages:
                self._install(wanted.packages)
        except BaseException:
            remove_own(os.getpid(), self.base)
            raise

    def begin_anew(self) -> None:
        self._lock = threading.Lock()

    @property
    def tools(self) -> dict[str, Any]:
        """The function that a session's code reaches by ``%pip``, if it may install something."""
        return {INSTALL: Typed(self.demanded, INSTALL)} if self._wanted.on_demand else {}

    def demanded(self, text: str) -> str:
        """Do what ``%pip`` says, and return what a notebook would show."""
        if type(text) is not str or len(text) > TOLD:
            raise ValueError(f"%pip takes a text of at most {TOLD} characters")
        words = shlex.split(text)
        if not words or words[0] != "install":
            raise ValueError("%pip can install packages, and nothing else: %pip install NAME")
        named = [word for word in words[1:] if word not in _IDLE]
        if not 0 < len(named) <= MOST:
            raise ValueError(f"%pip install needs the names of 1 to {MOST} packages")
        for one in named:
            name = name_of(requirement("%pip install", one))
            if name not in self._wanted.on_demand:
                allowed = ", ".join(sorted(self._wanted.on_demand))
                raise PermissionError(f"{name!r} may not be installed here; these may: {allowed}")
        self._install(named)
        return f"Installed {', '.join(named)}"

    def _install(self, named: list[str]) -> None:
        wanted = self._wanted
        where = ["--no-cache-dir"] if wanted.cache is None else ["--cache-dir", wanted.cache]
        env = {**os.environ}
        if wanted.index is not None:
            # Not in the arguments, which all users see: an address may have a password.
            env = {name: value for name, value in env.items() if not name.startswith("PIP_")}
            env["PIP_CONFIG_FILE"] = os.devnull
            if os.path.isdir(wanted.index):
                where += ["--no-index", "--find-links", wanted.index]
            else:
                env["PIP_INDEX_URL"] = wanted.index
        with self._lock, tempfile.TemporaryDirectory(prefix="fastaudit-rs-pip-") as temporary:
            constraints = os.path.join(temporary, "constraints.txt")
            with open(constraints, "w", encoding="utf-8") as file:
                # A package that is there, and maybe imported, stays as it is.
                file.writelines(f"{line}\n" for line in self._present())
            options = ["--target", self.directory, "--constraint", constraints, *_OPTIONS]
            places = [self.directory, temporary, *([wanted.cache] if wanted.cache else ())]
            program = [sys.executable, "-IB", "-c", _PROGRAM, _bundled(), json.dumps(places)]
            try:
                done = subprocess.run(
                    [*program, "install", *options, *where, "--", *named],
                    env={**env, "TMPDIR": temporary},
                    cwd=temporary,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=wanted.timeout,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise SandboxError(
                    f"pip took more than {wanted.timeout:g} s to install {', '.join(named)}"
                ) from None
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            errors = [line for line in lines if line.startswith("ERROR: ")] or lines[-1:]
            text = "\n".join(line.removeprefix("ERROR: ") for line in errors)
            raise SandboxError(f"pip cannot install {', '.join(named)}: {text[:TOLD]}")

    def _present(self) -> list[str]:
        found = []
        for one in importlib.metadata.distributions(path=[self.directory]):
            # A package may have put other ones beside it, or what is none.
            with contextlib.suppress(Exception):
                head: Any = one.metadata
                name, version = head.get("Name", ""), head.get("Version", "")
                if re.fullmatch(r"[\w.-]+", name) and re.fullmatch(r"[\w.+!]+", version):
                    found.append(f"{normal(name)}=={version}")
        return found

    def close(self) -> None:
        remove_own(os.getpid(), self.base)


def _check_apart(held: Iterable[Policy], places: Iterable[str]) -> None:
    """Raise if code can write there: pip would follow its links."""
    for policy in held:
        for place in map(os.path.realpath, places):
            for root in ("/",) if policy.write is None else policy.write:
                if os.path.commonpath((root, place)) == root:
                    raise ValueError(
                        f"install needs a place that code cannot write: write has {root!r}, which "
                        f"opens {place!r}; parent= makes the sandbox elsewhere"
                    )


def _bundled() -> str:
    """The path of pip, if the interpreter has only the one that it makes environments with."""
    if importlib.util.find_spec("pip") is not None:
        return ""
    ensurepip = importlib.util.find_spec("ensurepip")
    for place in (ensurepip and ensurepip.submodule_search_locations) or ():
        for wheel in sorted(glob.glob(os.path.join(place, "_bundled", "pip-*.whl"))):
            return wheel
    raise SandboxError("install needs pip: python -m ensurepip installs it")
