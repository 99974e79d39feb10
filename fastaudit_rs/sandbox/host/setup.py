"""The start of a sandbox's processes: a policy, and the part of it that the kernel holds."""

import contextlib
import fnmatch
import importlib
import os
import pickle
import shutil
import site
import sys
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import Network, Policy
from ..._native import _governing
from ...confined import USERS, needed
from ...sessions.errors import SandboxError
from ..limits import Limits
from . import copies, network as sandbox_network
from .calls import MODULES
from .metadata import Metadata
from .process import Confinement, Worker
from .runner import SandboxConfig

if TYPE_CHECKING:
    from ..secrets import Secret
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

#: The times of its memory that a sandbox may reserve, which `sandlock` counts: libraries reserve
#: more than they use.
RESERVED = 4

CONFINE = ("require", "prefer", "audit")

#: What the error for a system that cannot confine a sandbox says to authors of Python code.
PREFER = "; confine='prefer' runs without it"


class Setup:
    def __init__(self, config: SandboxConfig) -> None:
        self.config = config
        policy, approvable, directory = config.policy, config.approvable, str(config.directory)
        held = policy if approvable is None else bound(policy, approvable)
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
            held.network, has_secrets=bool(config.secrets), asks=held.network != policy.network
        )
        if self.is_carried and (config.secrets or _http(held)):
            from .egress import secrets as egress_secrets

            more.append(str(bundle))
            self._secrets = egress_secrets.Secrets(config.secrets, bundle)
        #: The rules of the network for the host that carries it. It reads the requests, and the
        #: guard does not: for that their hosts are like others.
        self._network = held.network
        self._approvable: tuple[bool | Network, bool | Network] | None = None
        if self.is_carried and approvable is not None and held.network != policy.network:
            self._approvable = policy.network, approvable.network
        written = _as_written(policy, directory)
        if self.is_carried:
            policy, held = map(_without_http, (policy, held))
        self.policy = _with(policy, more, directory)
        #: The policy of a guard whose host is asked about other hosts, by the proxy: it knows their
        #: names, and sees what native code and programs connect to.
        self._asking = self.policy
        if self._approvable is not None:
            network = _asked_by_others(policy.network, held.network)
            self._asking = self.policy.replace(network=network)
        self.word("sandbox", written)
        #: The policy that the kernel holds: answers may open more than the guard lets through.
        self._held = self.policy if approvable is None else _with(held, more, directory)
        self._closed = False
        self.begin_anew()
        copies.note(self)

    def begin_anew(self) -> None:
        self._lock = threading.Lock()
        self._started: weakref.WeakSet[Worker] = weakref.WeakSet()
        self._proxy: Proxy | None = None

    def word(self, words: str, written: Policy, line: str = "") -> None:
        """Have hints name what to write, in these words."""
        self.policy = self.policy._told_in(words, written, line)
        self._asking = self._asking._told_in(words, written, line)

    def start(
        self, preload: Sequence[str] = (), copies: int = 0, *, asks: bool | None = None
    ) -> Worker:
        """Start a process that waits for work; `copies` of ours do not count as the code's.

        By default it asks if the sandbox does.
        """
        config = self.config
        policy = self._asking if (config.asks if asks is None else asks) else self.policy
        modules = [*(MODULES if config.asks else ()), *preload]
        # The kernel holds that policy whatever is answered.
        most = None if config.kernel is None else self._held
        task = pickle.dumps((policy, most, [*config.path], modules, _governing()))
        write = self._held.write
        roots = None if write is None else existing(write)
        metadata = Metadata(roots, existing(self._held.block))
        reached = sandbox_network.reachable(self._held.network)
        is_alone = not (reached.allow or reached.listen or reached.has_names)
        limits = config.limits
        if limits.processes is not None:
            limits = replace(limits, processes=limits.processes + copies)
        connects = None
        if self.is_carried:
            from .egress.connects import Connects

            connects = Connects(self._carrier())
        confinement = Confinement(self._options(limits), metadata, is_alone, connects)
        worker = Worker(replace(config, limits=limits), confinement, task)
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


class Workers:
    """Workers that are started as they are needed. So many of them wait for the next runs."""

    def __init__(self, setup: Setup, preload: Sequence[str] = (), most: int = 1) -> None:
        self._setup = setup
        self._preload = preload
        self._most = most
        #: True if no more are started.
        self.closed = False
        self.begin_anew()
        copies.note(self)

    def begin_anew(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[tuple[Worker, Hashable]] = []

    @contextlib.contextmanager
    def worker(self) -> Iterator[Worker]:
        found = self._next() or self._started()
        yield found[0]
        self._keep(*found)

    def start(self) -> None:
        self._keep(*self._started())

    def _started(self) -> tuple[Worker, Hashable]:
        if self.closed:
            raise RuntimeError("the pool is closed")
        key = self._setup.state()
        return self._setup.start(self._preload), key

    def _next(self) -> tuple[Worker, Hashable] | None:
        """Take one that waits; one from another state is stale."""
        key = self._setup.state()
        while True:
            with self._lock:
                if not self._idle:
                    return None
                worker, of_state = self._idle.pop(0)
            if of_state == key and worker.is_alive:
                return worker, key
            worker.end()

    def _keep(self, worker: Worker, key: Hashable) -> None:
        with self._lock:
            if worker.is_alive and len(self._idle) < self._most and not self.closed:
                self._idle.append((worker, key))
                return
        worker.end()

    def close(self) -> None:
        with self._lock:
            self.closed = True
            idle, self._idle = self._idle, []
        for worker, _ in idle:
            worker.end()


#: Gives an idle worker for a run.
WorkerSource = Callable[[], AbstractContextManager[Worker]]


def bound(policy: Policy, up_to: Policy) -> Policy:
    """The policy that the kernel holds where answers may open what another policy allows.

    Places that the policy blocks stay blocked.
    """
    changes: dict[str, Any] = {"network": _bound_network(policy.network, up_to.network)}
    changes["write"] = _either(policy.write, up_to.write)
    if policy.read is not None and up_to.read is not None:
        changes["read"] = [*policy.read, *up_to.read]
    changes["commands"] = _both(policy.commands, up_to.commands)
    return policy.replace(**changes)


def _http(policy: Policy) -> tuple[str, ...]:
    return policy.network.http if isinstance(policy.network, Network) else ()


def _without_http(policy: Policy) -> Policy:
    network = policy.network
    if not isinstance(network, Network) or not network.http:
        return policy
    _, fields = network.__getnewargs_ex__()
    return policy.replace(network=Network(**{**fields, "http": ()}))


def _bound_network(own: bool | Network, more: bool | Network) -> bool | Network:
    if own is True or more is False:
        return own
    if more is True:
        # Rules, too: the host carries it, and asks before it connects.
        more = Network(listen=True, unix=None)
    if own is False:
        return more
    return Network(
        hosts=_either(own.hosts, more.hosts),
        block=own.block,
        ports=_either(own.ports, more.ports),
        listen=_both(own.listen, more.listen),
        unix=_either(own.unix, more.unix),
        lookup=own.lookup or more.lookup,
        max_connections=own.max_connections,
        http=_either(own.http, more.http) or (),
    )


def _asked_by_others(own: bool | Network, held: bool | Network) -> bool | Network:
    """The rules of a guard that lets pass what others ask about: the hosts to connect to."""
    assert isinstance(held, Network)
    _, fields = held.__getnewargs_ex__()
    kept = own if isinstance(own, Network) else Network(listen=own)
    changes = {name: getattr(kept, name) for name in ("listen", "unix", "max_connections")}
    return Network(**fields | changes)


def _either(own: Iterable[Any] | None, more: Iterable[Any] | None) -> list[Any] | None:
    return None if own is None or more is None else list(dict.fromkeys([*own, *more]))


def _both(own: bool | tuple[str, ...], more: bool | tuple[str, ...]) -> bool | list[str]:
    if own is True or more is True:
        return True
    return [*(own or ()), *(more or ())] or False


def check_network(
    kernel: Any, policy: Policy, approvable: Policy | None, secrets: Sequence["Secret"]
) -> None:
    """Check that the host can carry the network of a policy, with its secrets and questions."""
    network = policy.network
    held = policy if approvable is None else bound(policy, approvable)
    is_carried = sandbox_network.is_carried(
        held.network, has_secrets=bool(secrets), asks=held.network != network
    )
    if kernel is not None and is_carried and find_spec("h11") is None:
        raise SandboxError(
            "a network that names hosts needs h11: pip install 'fastaudit-rs[sandbox]'"
        )
    if kernel is not None and _http(held) and find_spec("trustme") is None:
        raise SandboxError(
            "network.http needs trustme, to read requests over TLS: "
            "pip install 'fastaudit-rs[secrets]'"
        )
    if not secrets:
        return
    names = [secret.name for secret in secrets]
    if len({*names}) < len(names):
        raise ValueError(f"secrets must differ by their names: {', '.join(names)}")
    if not isinstance(network, Network) or not network.hosts:
        raise ValueError(
            "secrets need a policy that names hosts: network=Network(hosts=['api.example.com'])"
        )
    if kernel is None:
        raise SandboxError("secrets need the kernel part, which there is not: confine='require'")
    if find_spec("trustme") is None:
        raise SandboxError("secrets need trustme: pip install 'fastaudit-rs[secrets]'")


def absolute(policy: Policy, directory: str) -> Policy:
    """The policy with its places resolved here, where ``"."`` means this directory."""

    def full(path: str) -> str:
        return directory if os.path.normpath(path) == os.curdir else _full(path)

    policy, network = _mapped(policy, full), policy.network
    if isinstance(network, Network) and network.unix:
        _, fields = network.__getnewargs_ex__()
        unix = [path if path.startswith("@") else full(path) for path in network.unix]
        policy = policy.replace(network=Network(**{**fields, "unix": unix}))
    return policy


def _mapped(policy: Policy, change: Callable[[str], str]) -> Policy:
    named = {name: getattr(policy, name) for name in ("write", "read", "block")}
    changes: dict[str, Any] = {
        name: list(map(change, paths)) for name, paths in named.items() if paths is not None
    }
    return policy.replace(**changes)


def _full(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))


def _with(policy: Policy, path: Iterable[str], directory: str) -> Policy:
    """The policy with the directory to write and read, and modules to read."""
    if policy.write is not None and directory not in policy.write:
        policy = policy.replace(write=[*policy.write, directory])
    if policy.read is not None:
        policy = policy.replace(read=[directory, *policy.read, *path])
    return policy


def _as_written(policy: Policy, directory: str) -> Policy:
    """The policy with ``"."`` for the directory, as its host wrote it: hints show it."""
    return _mapped(policy, lambda path: os.curdir if path == directory else path)


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


def existing(paths: Iterable[str]) -> list[str]:
    """Return the paths that exist, each once."""
    return [path for path in dict.fromkeys(paths) if os.path.exists(path)]


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def directories(named: Iterable[str | os.PathLike[str]]) -> list[str]:
    if isinstance(named, (str, os.PathLike)):
        raise TypeError(f"path must be directories, not {type(named).__name__}")
    return [_full(os.fspath(path)) for path in named]


def environment(named: Mapping[str, str] | Iterable[str]) -> dict[str, str]:
    if isinstance(named, str):
        raise TypeError("env must be a mapping or names, not str")
    passed = GIVEN | {
        name: value
        for name, value in os.environ.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in PASSED)
    }
    if isinstance(named, Mapping):
        return passed | {str(name): str(value) for name, value in named.items()}
    return passed | {name: os.environ[name] for name in named if name in os.environ}


@contextlib.contextmanager
def _some_home() -> Iterator[None]:
    """Have a home directory: `sandlock` asks for one as it is imported, and fails without."""
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/"
        try:
            yield
        finally:
            del os.environ["HOME"]
    else:
        yield


def kernel(confine: str) -> Any:
    """Return the package `sandlock`, if it and the kernel can do what is needed."""
    if getattr(sys, "frozen", False):
        raise SandboxError(
            "a sandbox starts sys.executable, which is this frozen application itself and "
            "no Python: use the sandbox from a program that an installed Python runs"
        )
    if confine == "audit":
        return None
    try:
        with _some_home():
            sandlock: Any = importlib.import_module("sandlock")
    except ImportError:
        why = (
            "it needs sandlock, which is for Linux and Python up to 3.14: "
            "pip install 'fastaudit-rs[sandbox]'"
        )
    else:
        if sandlock.landlock_abi_version() >= sandlock.min_landlock_abi():
            return sandlock
        why = "this kernel has too old a Landlock, or none"
    if confine == "require":
        raise SandboxError(f"this system cannot confine a sandbox: {why}{PREFER}")
    return None
