"""Waiting in tests for something that comes by itself."""

import time

from programs import SLOWER


def until(holds, seconds=20.0):
    """Wait until a function returns what is true; return that, or what it returns at the end."""
    deadline = time.monotonic() + seconds * SLOWER
    while not (found := holds()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found
