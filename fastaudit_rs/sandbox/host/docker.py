"""A sandbox's runs in containers: the backend ``"docker"``, by the package ``docker``."""

import contextlib
import importlib
import math
import os
import pickle
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..limits import Limits
from . import network as sandbox_network
from .ending import Ending
from .process import SandboxError
from .run import INTERVAL, REPORT, Result, told, used
from .setup import Setup, existing

if TYPE_CHECKING:
    from ..inside.child import Job

#: The place where a container finds its job.
PLACE = "/fastaudit-rs"

#: The program of a container.
START = "from fastaudit_rs.sandbox.inside.container import main; main()"
COMMAND = ["python", "-IB", "-c", START, PLACE]


class Docker:
    """A daemon that runs containers of an image.

    Args:
        image: The image: it has Python, with this package installed.

    Raises:
        SandboxError: The package ``docker`` is not there, or no daemon answers.
    """

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

    def run(
        self,
        setup: Setup,
        limits: Limits,
        base: str,
        job: "Job",
        given: bytes,
        ending: Ending,
    ) -> Result:
        """Run a job in a container of its own.

        Args:
            setup: The policy and the environment that it is started with.
            limits: The limits of the run.
            base: The directory that counts as its disk.
            job: The job.
            given: Its standard input.
            ending: The wish to end it.

        Raises:
            RuntimeError: It was ended from elsewhere.
            SandboxError: The daemon cannot run it.
        """
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(dir=base, prefix="job-") as place:
            Path(place, "job").write_bytes(pickle.dumps((setup.policy, job)))
            Path(place, "input").write_bytes(given)
            Path(place, "report").touch()
            with self._errors("it cannot be run"):
                container = self._api.create_container(**self._options(setup, limits, place))["Id"]
                try:
                    self._api.start(container)
                    watch = _Watch(self._api, container, limits, base, ending)
                    status, killed_by, texts = watch.result()
                    state = self._api.inspect_container(container)["State"]
                finally:
                    self._api.remove_container(container, force=True, v=True)
            with open(f"{place}/report", "rb") as file:
                violations, value = told(file.read(REPORT))
        # The status for a signal, as in shells.
        returncode = 128 - status if status > 128 else status
        if killed_by is None and state.get("OOMKilled"):
            killed_by = "memory"
        if returncode == -signal.SIGXCPU and limits.cpu_seconds is not None:
            killed_by = killed_by or "cpu_seconds"
        return Result(
            returncode=returncode,
            stdout=texts["stdout"].decode(errors="replace"),
            stderr=texts["stderr"].decode(errors="replace"),
            duration=time.monotonic() - begun,
            killed_by=killed_by,
            violations=violations,
            value=value,
        )

    def _options(self, setup: Setup, limits: Limits, place: str) -> dict[str, Any]:
        """The container: nothing but the policy's places, and as little power as possible."""
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
            mounts=self._mounts(setup, place),
        )
        home = str(setup.directory)
        # The image says where programs are.
        env = {name: value for name, value in setup.env.items() if name != "PATH"}
        return {
            "image": self._image,
            "command": COMMAND,
            "entrypoint": [],
            "environment": {**env, "HOME": home, "TMPDIR": home},
            "working_dir": home,
            "user": f"{os.getuid()}:{os.getgid()}",
            "labels": {"fastaudit-rs": "sandbox"},
            "host_config": host,
        }

    def _mounts(self, setup: Setup, place: str) -> list[Any]:
        """Return its mounts: places of the host to read and write, and covers for blocked ones."""
        mount = self._sdk.types.Mount
        policy = setup.policy
        writable = existing([*(policy.write or ()), str(setup.directory)])
        readable = set(existing([*(policy.read or ()), *setup.path])).difference(writable)
        mounts = [mount(each, each, type="bind", read_only=True) for each in readable]
        mounts += [mount(each, each, type="bind") for each in writable]
        for each in existing(policy.block):
            if os.path.isdir(each):
                mounts.append(mount(each, None, type="tmpfs", read_only=True))
            else:
                mounts.append(mount(each, os.devnull, type="bind", read_only=True))
        # A place is mounted after the places that it is in.
        mounts.sort(key=lambda mount: mount["Target"])
        return [*mounts, mount(PLACE, place, type="bind")]


class _Watch:
    """One container, watched until it ends."""

    def __init__(self, api: Any, container: str, limits: Limits, base: str, ending: Ending) -> None:
        self._ending = ending
        self._api = api
        self._container = container
        self._limits = limits
        self._base = base
        self._killed_by: str | None = None
        self._status: int | None = None
        self._error: BaseException | None = None
        self._texts = {"stdout": bytearray(), "stderr": bytearray()}

    def result(self) -> tuple[int, str | None, dict[str, bytearray]]:
        """Return its status, the limit that ended it, and its output."""
        jobs = [("wait", self._wait), *((name, self._read) for name in self._texts)]
        threads = [
            threading.Thread(target=self._noting, args=(job, name), daemon=True)
            for name, job in jobs
        ]
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                threads[0].join(INTERVAL)
                if threads[0].is_alive():
                    self._check(time.monotonic() - begun)
                else:
                    for thread in threads:
                        thread.join(1)
                    break
        except BaseException:
            self._end("")
            raise
        if self._error is not None:
            raise self._error
        return self._status or 0, self._killed_by, self._texts

    def _noting(self, job: Any, name: str) -> None:
        try:
            job(name)
        except BaseException as error:
            self._error = self._error or error

    def _wait(self, name: str) -> None:
        # The daemon answers when it ends: this is watched here.
        self._status = self._api.wait(self._container, timeout=None)["StatusCode"]

    def _read(self, name: str) -> None:
        text = self._texts[name]
        chosen = {"stdout": name == "stdout", "stderr": name == "stderr"}
        for data in self._api.logs(self._container, stream=True, follow=True, **chosen):
            most = self._limits.output
            room = len(data) if most is None else int(most) - len(text)
            text += data[: max(room, 0)]
            if len(data) > room:
                self._end("output")
                return

    def _check(self, seconds: float) -> None:
        self._ending.check()
        limits = self._limits
        if seconds > (limits.wall_seconds or math.inf):
            self._end("wall_seconds")
        elif limits.disk is not None and used(self._base) > int(limits.disk):
            self._end("disk")

    def _end(self, limit: str) -> None:
        if self._killed_by is None:
            self._killed_by = limit or None
            # It may have ended by itself meanwhile.
            with contextlib.suppress(Exception):
                self._api.kill(self._container)
