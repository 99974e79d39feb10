"""The start of a sandbox's processes: a policy, and the part of it that the kernel holds."""

import contextlib
import fnmatch
import os
import pickle
import shutil
import site
import sys
import threading
import weakref
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import Network, Policy, _landlock
from ..._native import _governing
from ...confined import USERS, needed
from ...sessions.arguments import listed, path_of
from ..limits import Limits
from . import cgroup, copies, network as sandbox_network, older
from .calls import MODULES
from .causes import counts_processes
from .copied import MOST, CopiedWorker, Original, can_copy
from .counts import Counts
from .egress.unaddressed import Unaddressed
from .metadata import Metadata
from .policies import as_written, asked_by_others, bound, resolved, with_places, without_http
from .process import RESERVED, Confinement, StartedWorker
from .runner import SandboxConfig
from .worker import Worker

if TYPE_CHECKING:
    from .egress.proxy import Proxy
    from .egress.secrets import Secrets

#: Variables that pass from the host: those that all programs need.
PASSED = ("PATH", "LANG", "LANGUAGE", "LC_*", "TZ")

#: Files of the system that are no secrets, and that common libraries read.
PUBLIC = (
    "/etc/timezone",
    *("/usr/share/fonts", "/usr/local/share/fonts", "/usr/share/fontconfig", "/etc/fonts"),
    *("/etc/mime.types", "/etc/os-release", "/etc/lsb-release", "/etc/debian_version"),
    *("/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu", "/sys/fs/cgroup"),
)

#: Variables for a network that the host carries: names are asked for over TCP, once, and as they
#: are (resolv.conf(5)).
RESOLVER = {"RES_OPTIONS": "use-vc attempts:1", "LOCALDOMAIN": ""}

#: Variables with values of their own: nothing compiled is left beside the modules of a sandbox.
GIVEN = {"PYTHONDONTWRITEBYTECODE": "1"}


#: Modules that each session finds imported.
SESSION = ("fastaudit_rs.sandbox.inside.session",)


class Setup:
    def __init__(self, config: SandboxConfig) -> None:
        self.config = config
        policy, approvable, directory = config.policy, config.approvable, str(config.directory)
        held = bound(policy, approvable)
        #: The places that it depends on, but for those that are the same for all.
        self._named = (*(held.write or ()), *(held.read or ()), *held.block, *config.path)
        more = [*config.path]
        if not config.in_container:
            # Of the host's files a container has none.
            more += public()
        bundle = Path(config.base, "certificates.pem")
        self._secrets: Secrets | None = None
        #: True if the host carries the connections.
        self.is_carried = config.kernel is not None and sandbox_network.is_carried(
            policy.network, held.network, has_secrets=bool(config.secrets)
        )
        if self.is_carried and (config.secrets or sandbox_network.has_http(held.network)):
            from .egress import secrets as egress_secrets

            more.append(str(bundle))
            self._secrets = egress_secrets.Secrets(config.secrets, bundle)
        #: The rules of the network for the host that carries it. It reads the requests, and the
        #: guard does not: for that their hosts are like others.
        self._network = held.network
        self._approvable: tuple[bool | Network, bool | Network] | None = None
        if self.is_carried and approvable is not None and held.network != policy.network:
            self._approvable = policy.network, approvable.network
        written = as_written(policy, directory)
        if self.is_carried:
            policy, held = map(without_http, (policy, held))
        self.policy = with_places(policy, more, directory)
        #: The policy of a guard whose host is asked about other hosts, by the proxy: it knows their
        #: names, and sees what native code and programs connect to.
        self._asking = self.policy
        if self._approvable is not None:
            network = asked_by_others(policy.network, held.network)
            self._asking = self.policy.replace(network=network)
        self.word("sandbox", written)
        #: The policy that the kernel holds: answers may open more than the guard lets through.
        self._held = self.policy if approvable is None else with_places(held, more, directory)
        self._closed = False
        self.begin_anew()
        copies.note(self)

    def begin_anew(self) -> None:
        self._lock = threading.Lock()
        self._started: weakref.WeakSet[StartedWorker] = weakref.WeakSet()
        self._copying = threading.Lock()
        #: The workers to copy, with the states that they depend on.
        self._originals: list[tuple[Hashable, Original]] = []
        self._proxy: Proxy | None = None

    def word(self, words: str, written: Policy, line: str = "") -> None:
        """Have hints name what to write, in these words."""
        self.policy = self.policy._told_in(words, written, line)
        self._asking = self._asking._told_in(words, written, line)

    def session_worker(self, copies: int, *, asks: bool) -> Worker:
        """Return a process for a session; `copies` of ours do not count as the code's.

        It is copied from one that was started, where copies can be held apart.
        """
        limits = self.config.limits
        # The host logs the connections of each started one.
        is_held = self.config.kernel is not None and not self.is_carried
        if not is_held or _reads_processes(self._held) or not can_copy(limits):
            return self.start(SESSION, copies, asks=asks)
        key = asks, self.state()
        with self._copying:
            found = [one for of, one in self._originals if of == key and one.copies < MOST]
            original = next((one for one in found if one.is_alive), None)
            if original is None:
                counts = Counts()
                original = Original(self.start(SESSION, asks=asks, counts=counts), counts)
                self._originals.append((key, original))
            original.take()
            self._drop_unused()
        return CopiedWorker(original, limits, copies)

    def _drop_unused(self) -> None:
        """End the originals without copies: there is one that has some."""
        for one in list(self._originals):
            if not one[1].copies:
                self._originals.remove(one)
                one[1].close()

    def start(
        self,
        preload: Sequence[str] = (),
        copies: int = 0,
        *,
        asks: bool | None = None,
        counts: Counts | None = None,
    ) -> StartedWorker:
        """Start a process that waits for work; `copies` of ours do not count as the code's.

        By default it asks if the sandbox does. With `counts` it is one to copy.
        """
        config = self.config
        policy = self._asking if (config.asks if asks is None else asks) else self.policy
        modules = [*(MODULES if config.asks else ()), *preload, *config.preload]
        # The kernel holds that policy whatever is answered.
        most = None if config.kernel is None else self._held
        is_copied = counts is not None
        task = pickle.dumps((policy, most, [*config.path], modules, _governing(), is_copied))
        write = self._held.write
        roots = None if write is None else existing(write)
        landlock = _landlock.version()
        truncates = landlock < older.TRUNCATE
        metadata = Metadata(roots, existing(self._held.block), truncates=truncates)
        signals = older.Signals() if landlock < _landlock.WHOLE else None
        reached = sandbox_network.reachable(self._held.network)
        is_alone = not (reached.allow or reached.listen or reached.has_names)
        limits = config.limits
        if limits.processes is not None:
            limits = replace(limits, processes=limits.processes + copies)
        connects = unaddressed = None
        if self.is_carried:
            from .egress.connects import Connects

            connects = Connects(self._carrier())
        elif sandbox_network.holds_addresses(self._held.network):
            unaddressed = Unaddressed()
        counted = limits
        if is_copied:
            # Each copy has a count of its own.
            counted = replace(limits, cpu_percent=None, processes=None)
        if cgroup.are_there():
            # Its group counts memory, so that the kernel need not ask about each mmap(2).
            counted = replace(counted, memory=None)
        options = self._options(counted)
        confinement = Confinement(
            options, metadata, is_alone, connects, unaddressed, signals, counts
        )
        worker = StartedWorker(replace(config, limits=limits), confinement, task)
        with self._lock:
            closed = self._closed
            self._started.add(worker)
        if closed:
            worker.end()
            raise RuntimeError("the sandbox is closed")
        return worker

    def _carrier(self) -> "Proxy":
        """Return the proxy, which is started with the first process."""
        from .egress.asking import Approvable
        from .egress.proxy import Proxy

        network = self._network
        assert isinstance(network, Network)
        with self._lock:
            if self._closed:
                raise RuntimeError("the sandbox is closed")
            if self._proxy is None:
                approvable = self._approvable and Approvable(*self._approvable)
                self._proxy = Proxy(network, self._secrets, approvable)
            return self._proxy

    def end_all(self) -> None:
        with self._lock:
            self._closed = True
            started = list(self._started)
        for worker in started:
            worker.end()
        if self._proxy is not None:
            self._proxy.close()

    def state(self) -> Hashable:
        """Return the state that a process depends on: the identities of files and directories."""
        policy = self._held
        sockets = sandbox_network.sockets(policy.network)
        return tuple(map(_identity, (*self._named, str(self.config.directory), *sockets)))

    def rings(self) -> dict[str, str]:
        """Return the rings that hold each field and each limit; see `Sandbox.explain`."""
        config = self.config
        in_docker = config.in_container
        outer = "container" if in_docker else "kernel"
        is_held = in_docker or config.kernel is not None
        both = f"guard and {outer}" if is_held else "guard"
        network = config.policy.network
        if isinstance(network, bool):
            of_network = both
        elif in_docker or not is_held:
            of_network = "guard"
        elif self.is_carried:
            # The kernel lets nothing be reached, and the host connects.
            of_network = "guard, kernel and host"
        else:
            # For blocked hosts with names the kernel knows the ports alone.
            has_names = sandbox_network.reachable(network).has_names
            of_network = "guard, and kernel for ports" if has_names else both
        told = dict.fromkeys(("write", "read", "block", "network", "other_processes"), both)
        told["network"] = of_network
        if not in_docker and is_held:
            told |= older.rings()
        if not existing(config.policy.block):
            told["block"] = "guard"
        fields = ("protect", "max_bytes", "commands", "env", "imports", "import_allow", "threads")
        told |= dict.fromkeys((*fields, "native", "unknown_events"), "guard")
        own = ("wall_seconds", "disk", "output")
        limits = dict.fromkeys(own, "host") | {"cpu_seconds": "process"}
        by_the_outer = ("memory", "cpu_percent", "processes", "open_files")
        limits |= dict.fromkeys(by_the_outer, outer)
        if not in_docker and not cgroup.are_there():
            limits["memory"] = "kernel, each process by itself"
        if not in_docker and not cgroup.are_there("cpu"):
            limits["cpu_percent"] = "host, each core by itself" if is_held else "nothing"
        if not is_held:
            counted = "kernel, with all of its user's" if counts_processes() else "nothing"
            limits["processes"] = counted
        return told | limits | {"privileges": outer if is_held else "nothing"}

    def _options(self, limits: Limits) -> dict[str, Any]:
        """Return what the kernel is to hold, as `sandlock` takes it, with these limits."""
        policy = self._held
        write = ["/"]
        if policy.write is not None:
            write = [*policy.write, *sandbox_network.sockets(policy.network), "/dev/null"]
        if policy.read is None or "/" in policy.read:
            read = ["/"]
        else:
            program = Path(sys.executable)
            programs = [str(program.parent), str(program.resolve().parent)]
            # The files of /proc about the process itself, such as its children.
            read = [*policy.read, *programs, *_programs(policy), *USERS, "/proc/self"]
            # Places that may be written may be read, as under a guard.
            read += [place for place in policy.write or () if place != "/"]
        network = sandbox_network.reachable(policy.network)
        env = self.config.env
        if self.is_carried:
            # The kernel lets nothing be reached; the host connects.
            network = replace(network, allow=[], deny=[])
            env = {**env, **RESOLVER}
        if self._secrets is not None:
            env = {**env, **self._secrets.env}
        home = str(self.config.directory)
        return {
            **older.options(self.config.kernel),
            "fs_readable": existing(read),
            "fs_writable": existing(write),
            "fs_denied": existing(policy.block),
            "net_allow": network.allow,
            "net_deny": network.deny,
            "net_allow_bind": network.listen,
            "max_memory": None if limits.memory is None else RESERVED * int(limits.memory),
            # Start one more, which waits for work.
            "max_processes": None if limits.processes is None else limits.processes + 1,
            "max_open_files": limits.open_files,
            "max_cpu": limits.cpu_percent,
            "cwd": home,
            "clean_env": True,
            "env": {**env, "HOME": home, "TMPDIR": home},
            "no_coredump": True,
        }


def public() -> list[str]:
    """Return the places that each sandbox may read: no secrets, and nothing of the user's.

    They are those of the interpreter and its packages, wherever these lie, and some of the system.
    """
    # Files beside the host's own program are not the sandbox's.
    package = str(Path(__file__).parents[3])
    return needed((package, f"{sys.prefix}/pyvenv.cfg", *_linked(), *PUBLIC))


def _linked() -> list[str]:
    """Return the directories of packages that lie elsewhere, such as editable installs."""
    found: list[str] = []
    for place in site.getsitepackages():
        for file in Path(place).glob("*.pth"):
            with contextlib.suppress(OSError, ValueError):
                lines = map(str.strip, file.read_text(encoding="utf-8").splitlines())
                named = [os.path.join(place, line) for line in lines if not line.startswith("#")]
                found += [path for path in named if os.path.isdir(path)]
    return found


def _programs(policy: Policy) -> list[str]:
    if policy.commands is True:
        return [place for place in os.get_exec_path() if os.path.isabs(place)]
    found = [
        shutil.which(command.split()[0]) for command in policy.commands or () if command.strip()
    ]
    return [os.path.realpath(program) for program in found if program is not None]


def _reads_processes(policy: Policy) -> bool:
    """True if it lets /proc/PID be read: that of all that the kernel confines together."""
    if policy.read is None or policy.write is None:
        return True
    places = map(os.path.realpath, (*policy.read, *policy.write))
    return not {"/", "/proc"}.isdisjoint(places)


def existing(paths: Iterable[str]) -> list[str]:
    """Return the paths that exist, each once."""
    return [path for path in dict.fromkeys(paths) if os.path.exists(path)]


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def module_names(preload: Iterable[str]) -> list[str]:
    names = listed("preload", preload, "a list of modules")
    for number, name in enumerate(names):
        if not isinstance(name, str):
            kind = type(name).__name__
            raise TypeError(f"preload[{number}] must be the name of a module, not {kind}")
    return names


def directories(named: Iterable[str | os.PathLike[str]]) -> list[str]:
    places = listed("path", named, "a list of directories")
    return [resolved(path_of(f"path[{number}]", place)) for number, place in enumerate(places)]


def environment(named: Mapping[str, str] | Iterable[str]) -> dict[str, str]:
    passed = GIVEN | {
        name: value
        for name, value in os.environ.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in PASSED)
    }
    if not isinstance(named, Mapping):
        given = listed("env", named, "a mapping or a list of names")
        names = [plain_text("env", name) for name in given]
        named = {name: os.environ[name] for name in names if name in os.environ}
    return variables(passed | dict(named))


def variables(given: Mapping[Any, Any]) -> dict[str, str]:
    """Variables of a program, checked: environ(7)."""
    found = {plain_text("env", name): plain_text("env", value) for name, value in given.items()}
    for name in found:
        if not name or "=" in name:
            raise ValueError(f"env: {name!r} is no name of a variable")
    return found


def plain_text(argument: str, given: object) -> str:
    """A text that a program may get."""
    text = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(text, str):
        raise TypeError(f"{argument} must be str, not {type(given).__name__}: write str(…)")
    if "\0" in text:
        raise ValueError(f"{argument} must have no null characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{argument} must be text of Unicode, not {text[:100]!r}") from None
    return text
