"""A sandbox's container, watched until it ends."""

import contextlib
import math
import threading
import time
from collections.abc import Callable
from typing import Any

from .cancel import CancelToken
from .config import SandboxConfig
from .files import Disk
from .process import SandboxError
from .run import INTERVAL

#: The time for output that is still on its way when a container has ended, in seconds.
DRAINED = 1.0

#: The time between two orders to kill a container, in seconds.
AGAIN = 1.0

#: The time for a runtime to kill a container, in seconds.
PATIENCE = 20.0


class Watch:
    """One container, from its start to its end.

    Args:
        api: The daemon, of the package ``docker``.
        container: The container, not started yet.
        config: The sandbox's configuration.
        cancel: Its cancel token.
    """

    def __init__(
        self, api: Any, container: str, config: SandboxConfig, cancel: CancelToken
    ) -> None:
        """Prepare one."""
        self._api = api
        self._container = container
        self._limits = config.limits
        self._disk = Disk(config.base, config.limits.disk)
        self._cancel = cancel
        self._killed_by: str | None = None
        self._status: int | None = None
        self._error: BaseException | None = None
        self._texts = {"stdout": bytearray(), "stderr": bytearray()}

    def result(self) -> tuple[int, str | None, dict[str, bytearray]]:
        """Start it; return its status, the limit that ended it, and its output.

        Raises:
            RuntimeError: It was ended from elsewhere.
            SandboxError: The runtime does not end it.
        """
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
        begun = time.monotonic()
        reading = self._thread(lambda: self._read(output))
        try:
            self._until(self._thread(self._wait), begun)
        except BaseException:
            self._kill()
            raise
        finally:
            self._disk.close()
        reading.join(DRAINED)
        if self._error is not None:
            raise self._error
        return self._status or 0, self._killed_by, self._texts

    def _until(self, waiting: threading.Thread, begun: float) -> None:
        """Wait for its end; kill it if there is a reason to."""
        kill_at = give_up_at = math.inf
        while True:
            waiting.join(INTERVAL)
            if not waiting.is_alive():
                return
            if self._error is not None:
                raise self._error
            now = time.monotonic()
            if self._killed_by is None:
                self._check(now - begun)
            if self._killed_by is not None and kill_at == math.inf:
                kill_at, give_up_at = now, now + PATIENCE
            if now >= give_up_at:
                raise SandboxError("the docker backend: the runtime does not end the container")
            if now >= kill_at:
                self._kill()
                kill_at = time.monotonic() + AGAIN

    def _thread(self, job: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=self._noting, args=(job,), daemon=True)
        thread.start()
        return thread

    def _noting(self, job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            self._error = self._error or error

    def _wait(self) -> None:
        # The daemon answers when it ends: this is watched here.
        self._status = self._api.wait(self._container, timeout=None)["StatusCode"]

    def _read(self, output: Any) -> None:
        """Read its output to the end, which is the container's; keep what is within the limit."""
        most = math.inf if self._limits.output is None else int(self._limits.output)
        try:
            for parts in output:
                for text, data in zip(self._texts.values(), parts, strict=True):
                    if data and len(text) + len(data) > most:
                        # Not all runtimes end a container whose output nobody reads.
                        self._killed_by = self._killed_by or "output"
                        data = data[: int(most) - len(text)]
                    text += data or b""
        finally:
            _close(output)

    def _check(self, seconds: float) -> None:
        self._cancel.check()
        limits = self._limits
        if seconds > (limits.wall_seconds or math.inf):
            self._killed_by = self._killed_by or "wall_seconds"
        elif self._disk.is_over():
            self._killed_by = self._killed_by or "disk"

    def _kill(self) -> None:
        # It may have ended by itself meanwhile.
        with contextlib.suppress(Exception):
            self._api.kill(self._container)


def _close(output: Any) -> None:
    """Close the connection: the stream's own method leaves half of it, for a warning."""
    with contextlib.suppress(Exception):
        output._response.close()
