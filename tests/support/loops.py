"""Event loops whose executor belongs to the host."""

import asyncio
from concurrent.futures import ThreadPoolExecutor


class NoThreads(ThreadPoolExecutor):
    """The executor of a loop, for the host alone."""

    def submit(self, *_, **__):
        raise AssertionError("a thread of the loop's executor is used")


def awaited(main):
    """Run a coroutine function in a loop whose executor belongs to others."""

    async def run():
        asyncio.get_running_loop().set_default_executor(NoThreads(1))
        return await main()

    return asyncio.run(run())
