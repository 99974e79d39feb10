"""Jobs for other processes, which import them from here."""

import asyncio
import os
import time

from fastaudit_rs import Policy, guarded


def make(path):
    os.mkdir(path)
    return os.getpid()


async def make_later(path):
    await asyncio.sleep(0)
    os.mkdir(path)


def square(number, seconds=0.0):
    time.sleep(seconds)
    return number * number


@guarded(Policy(write=[]))
def decorated(path):
    """The decorated function."""
    os.mkdir(path)


class Things:
    @guarded(Policy(write=[]))
    def method(self, path):
        os.mkdir(path)

    def make_in(self, directory):
        os.mkdir(f"{directory}/made")
