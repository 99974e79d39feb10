"""A sandbox's runs in containers: the backend ``"docker"``, by the package ``docker``."""

import contextlib
import importlib
import math
import os
import pickle
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent import futures
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ... import Policy
from ..._native import _governing
from ..._threads import apart
from ...results import Result, Timings
from ...sessions.errors import SandboxError
from ..limits import keep, limit_of
from ..wire import REPORT, Job
from . import network as sandbox_network
from .files import Disk
from .run import told
from .runner import RunRequest, SandboxConfig
from .setup import Setup, existing
from .watcher import INTERVAL

#: The place where a container finds its job.
PLACE = "/fastaudit-rs"

#: Places that runtimes let a container write, in memory, though its root is read-only.
SCRATCH = ("/tmp", "/var/tmp", "/run", "/dev/shm")

#: Files of the kernel: a container has its own, and runtimes refuse mounts there.
KERNEL = ("/dev", "/proc", "/sys")

#: The program of a container. It writes no bytecode, where it could not.
START = "from fastaudit_rs.sandbox.inside.child import in_container; in_container()"
COMMAND = ["python", "-IB", "-c", START, PLACE]

#: The time for output that is still on its way when a container has ended, in seconds.
DRAINED = 1.0

#: The time between two orders to kill a container, in seconds.
AGAIN = 1.0

#: The time for a runtime to kill a container, in seconds.
PATIENCE = 20.0


class Docker:
    """A daemon that runs containers of an image."""

    def __init__(self, image: str) -> None:
        """Ask the daemon that the environment names (``DOCKER_HOST``), or the usual one."""
        try:
            self._sdk: Any = importlib.import_module("docker")
        except ImportError:
            raise SandboxError(
                "the docker backend needs docker: pip install 'fastaudit-rs[docker]'"
            ) from None
        self._image = image
        with self._errors("no daemon answers"):
            self._api: Any = self._sdk.from_env().api
            self._api.ping()

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Errors of the daemon, and of the way to it, as our own."""
        try:
            yield
        except (self._sdk.errors.DockerException, OSError) as error:
            raise SandboxError(f"the docker backend: {what}: {error}") from error

    def run(self, setup: Setup, job: Job, request: RunRequest) -> Result:
        config, begun = setup.config, time.monotonic()
        with contextlib.ExitStack() as stack:
            place = stack.enter_context(tempfile.TemporaryDirectory(dir=config.base, prefix="job-"))
            Path(place, "job").write_bytes(pickle.dumps((setup.policy, _governing(), job)))
            Path(place, "input").write_bytes(request.stdin or b"")
            # Opened before the code can do anything about it.
            report = stack.enter_context(open(f"{place}/report", "w+b"))
            stack.enter_context(self._errors("it cannot be run"))
            container = self._api.create_container(**self._options(setup, place))["Id"]
            try:
                watch = Watch(self._api, container, config, request)
                status, killed_by, texts = watch.result()
                state = self._api.inspect_container(container)["State"]
            finally:
                self._api.remove_container(container, force=True, v=True)
            reported, ran = told(report.read(REPORT))
        returncode = _returncode(status)
        # Not all runtimes tell that memory was short.
        was_short = bool(state.get("OOMKilled"))
        ended = time.monotonic()
        return Result(
            returncode=returncode,
            stdout=texts["stdout"].decode(errors="replace"),
            stderr=texts["stderr"].decode(errors="replace"),
            duration=ended - begun,
            timings=Timings.between(request.asked, begun, ended, ran),
            killed_by=killed_by or limit_of(returncode, config.limits, was_short=was_short),
            **reported,
        )

    def _options(self, setup: Setup, place: str) -> dict[str, Any]:
        """The container: nothing but the policy's places, and as little power as possible."""
        config, home = setup.config, str(setup.config.directory)
        limits = config.limits
        types = self._sdk.types
        ulimits = []
        if limits.open_files is not None:
            most = limits.open_files
            ulimits.append(types.Ulimit(name="nofile", soft=most, hard=most))
        cpus = None if limits.cpu_percent is None else limits.cpu_percent * 10_000_000
        host = self._api.create_host_config(
            network_mode="none" if sandbox_network.is_local(setup.policy.network) else "bridge",
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            mem_limit=limits.memory,
            # With swap: none.
            memswap_limit=limits.memory,
            nano_cpus=cpus,
            pids_limit=limits.processes,
            ulimits=ulimits,
            init=True,
            mounts=_mounts(types.Mount, setup.policy, config.path, home, place),
            # A log would grow on the host's disk: the output is read while it is written.
            log_config=types.LogConfig(type="none"),
        )
        # The image says where programs are.
        env = {name: value for name, value in config.env.items() if name != "PATH"}
        return {
            "image": self._image,
            "command": COMMAND,
            "entrypoint": [],
            "environment": {**env, "HOME": home, "TMPDIR": home},
            "working_dir": home,
            "user": f"{os.getuid()}:{os.getgid()}",
            # For people who look for what is left after a host was killed.
            "labels": {"fastaudit-rs": home},
            "host_config": host,
        }


def _returncode(status: int) -> int:
    """The exit status; minus the number of a signal, for which it is 128 more, as in shells."""
    return 128 - status if status - 128 in signal.valid_signals() else status


class Watch:
    def __init__(
        self, api: Any, container: str, config: SandboxConfig, request: RunRequest
    ) -> None:
        self._api = api
        self._container = container
        self._limits = config.limits
        self._disk = Disk(config.base, config.limits.disk, config.disk_use)
        self._seconds = config.seconds(request)
        self._cancel = request.cancel
        self._killed_by: str | None = None
        self._texts = {"stdout": bytearray(), "stderr": bytearray()}

    def result(self) -> tuple[int, str | None, dict[str, bytearray]]:
        """Start it; return its status, the limit that ended it, and its output."""
        self._cancel.check()
        # Before it starts, so that nothing of its output is missed.
        output = self._api.attach(
            self._container, stdout=True, stderr=True, stream=True, demux=True
        )
        try:
            self._api.start(self._container)
        except BaseException:
            _close(output)
            raise
        reading = apart(lambda: self._read(output), "output")
        # The daemon answers when it ends: the time is watched here.
        ended = apart(lambda: self._api.wait(self._container, timeout=None)["StatusCode"], "end")
        try:
            self._until(ended, reading)
        except BaseException:
            self._kill()
            raise
        finally:
            self._disk.close(was_over=self._killed_by == "disk")
        if futures.wait([reading], DRAINED).done:
            reading.result()
        return ended.result() or 0, self._killed_by, self._texts

    def _until(self, ended: "Future[int]", reading: "Future[None]") -> None:
        begun = time.monotonic()
        kill_at = give_up_at = math.inf
        while not futures.wait([ended], INTERVAL).done:
            if reading.done():
                reading.result()
            now = time.monotonic()
            if self._killed_by is None:
                self._cancel.check()
                if self._seconds is not None and now - begun > self._seconds:
                    self._killed_by = "wall_seconds"
                elif self._disk.is_over():
                    self._killed_by = "disk"
            if self._killed_by is not None and kill_at == math.inf:
                kill_at, give_up_at = now, now + PATIENCE
            if now >= give_up_at:
                raise SandboxError("the docker backend: the runtime does not end the container")
            if now >= kill_at:
                self._kill()
                kill_at = time.monotonic() + AGAIN

    def _read(self, output: Any) -> None:
        """Read its output to the end, which is the container's; keep what is within the limit."""
        try:
            for parts in output:
                for text, data in zip(self._texts.values(), parts, strict=True):
                    if data and len(keep(text, data, self._limits.output)) < len(data):
                        # Not all runtimes end a container whose output nobody reads.
                        self._killed_by = self._killed_by or "output"
        finally:
            _close(output)

    def _kill(self) -> None:
        # It may have ended by itself meanwhile.
        with contextlib.suppress(Exception):
            self._api.kill(self._container)


def _close(output: Any) -> None:
    """Close the connection: the stream's own method leaves half of it, for a warning."""
    with contextlib.suppress(Exception):
        output._response.close()


def _mounts(mount: Any, policy: Policy, path: Iterable[str], own: str, place: str) -> list[Any]:
    """Return the mounts, each after those that it is in."""
    blocked = _outermost(existing(policy.block))
    # In a place that may be written an earlier run may have made a link of any directory, which
    # the runtime would follow: nothing that is in such a place is mounted once more.
    writable = _outermost(_named((*(policy.write or ()), own)))
    readable = [each for each in _named((*(policy.read or ()), *path)) if not _in(each, writable)]
    places = dict.fromkeys(writable, False) | dict.fromkeys(readable, True)
    places = {each: places[each] for each in places if not _in(each, blocked)}
    if _in(own, blocked):
        # Where the code begins is there all the same.
        places[own] = False
    found = {
        each: mount(each, each, type="bind", read_only=is_read_only)
        for each, is_read_only in places.items()
    }
    for number, each in enumerate(blocked):
        if not _in(each, places):
            # Of the host nothing is there. In memory, as files of the runtime may be in it.
            if os.path.isdir(each) and not _in(each, KERNEL):
                found[each] = mount(each, None, type="tmpfs", read_only=True)
            continue
        # Empty, and not in memory: some runtimes fill that with a copy of the files below.
        empty = Path(place, f"empty-{number}")
        if not os.path.isdir(each):
            empty.touch()
        else:
            empty.mkdir()
            if _in(own, [each]):
                (empty / os.path.relpath(own, each)).mkdir(parents=True)
        found[each] = mount(each, str(empty), type="bind", read_only=True)
    for each in SCRATCH:
        if each not in found and not _in(each, places):
            found[each] = mount(each, None, type="tmpfs", read_only=True)
    job = [
        mount(f"{PLACE}/{name}", f"{place}/{name}", type="bind", read_only=name != "report")
        for name in ("input", "job", "report")
    ]
    return [found[each] for each in sorted(found)] + job


def _named(paths: Iterable[str]) -> list[str]:
    """Return the paths that exist. The root is the image's, and read-only, whatever names it."""
    return existing(path for path in paths if path != "/")


def _outermost(paths: Iterable[str]) -> list[str]:
    found: list[str] = []
    for path in sorted(set(paths)):
        if not _in(path, found):
            found.append(path)
    return found


def _in(path: str, places: Iterable[str]) -> bool:
    return any(Path(path).is_relative_to(place) for place in places)
