"""The event loop of a host that has none: for its functions that are coroutines."""

import asyncio
import threading

#: The time for the loop to stop, in seconds.
PATIENCE = 1.0


class HostLoop:
    """An event loop in a thread of its own, from the first use on."""

    def __init__(self) -> None:
        self._running: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None

    def __call__(self) -> asyncio.AbstractEventLoop:
        if self._running is None:
            loop = asyncio.new_event_loop()
            run = loop.run_forever
            thread = threading.Thread(target=run, name="fastaudit_rs: functions", daemon=True)
            thread.start()
            self._running = loop, thread
        return self._running[0]

    def close(self) -> None:
        """Stop it, and close it unless a function of the host holds it up."""
        running, self._running = self._running, None
        if running is None:
            return
        loop, thread = running
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(PATIENCE)
        if not loop.is_running():
            loop.close()
