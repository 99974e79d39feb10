"""A sandbox's runs in containers: the backend ``"docker"``, by the package ``docker``."""

import contextlib
import importlib
import os
import pickle
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..._native import _governing
from ...results import Result
from ..limits import limit_of
from ..wire import REPORT, Job
from . import network as sandbox_network
from .cancel import CancelToken
from .mounts import PLACE, mounts
from .process import SandboxError
from .run import told
from .setup import Setup
from .watch import Watch

#: The program of a container. It writes no bytecode, where it could not.
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

    def run(self, setup: Setup, job: Job, given: bytes, cancel: CancelToken) -> Result:
        """Run a job in a container of its own.

        Args:
            setup: The policy and the environment that it is started with.
            job: The job.
            given: Its standard input.
            cancel: Its cancel token.

        Raises:
            RuntimeError: It was ended from elsewhere.
            SandboxError: The daemon cannot run it.
        """
        config, begun = setup.config, time.monotonic()
        with contextlib.ExitStack() as stack:
            place = stack.enter_context(tempfile.TemporaryDirectory(dir=config.base, prefix="job-"))
            Path(place, "job").write_bytes(pickle.dumps((setup.policy, _governing(), job)))
            Path(place, "input").write_bytes(given)
            # Opened before the code can do anything about it.
            report = stack.enter_context(open(f"{place}/report", "w+b"))
            stack.enter_context(self._errors("it cannot be run"))
            container = self._api.create_container(**self._options(setup, place))["Id"]
            try:
                watch = Watch(self._api, container, config, cancel)
                status, killed_by, texts = watch.result()
                state = self._api.inspect_container(container)["State"]
            finally:
                self._api.remove_container(container, force=True, v=True)
            reported = told(report.read(REPORT))
        returncode = _returncode(status)
        # Not all runtimes tell that memory was short.
        was_short = bool(state.get("OOMKilled"))
        return Result(
            returncode=returncode,
            stdout=texts["stdout"].decode(errors="replace"),
            stderr=texts["stderr"].decode(errors="replace"),
            duration=time.monotonic() - begun,
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
            mounts=mounts(types.Mount, setup.policy, config.path, home, place),
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
