"""Serve many users at once for some time, and see that none notices another.

    web_users.py SECONDS [USERS]

Each user of docs/recipes/fastapi_users.py asks for a step each 20 s. One step in fifty never ends,
takes too much memory, or kills its process. It fails on a wrong answer, or where the server's
memory or descriptors grow.
"""

import asyncio
import contextlib
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx

RECIPE = Path(__file__).parent.parent / "docs/recipes/fastapi_users.py"

#: The seconds between two steps of a user, and those in which all of them come: a sandbox takes a
#: quarter of a second of a core to start.
PAUSE, ARRIVAL = 20.0, 60.0

#: The seconds that a client keeps a connection: a server closes it after 5, maybe as it is used.
KEPT = 2.0

#: One step in so many is a bad one.
BAD_EACH = 50

#: The bad steps, and how each may end.
BAD = {
    "while True: pass": {"wall_seconds"},
    "import time; time.sleep(60)": {"wall_seconds"},
    # More than may be reserved: an error of the step.
    "filled = bytearray(10**10)": {None},
    "many = []\nwhile True: many.append(bytearray(10**7))": {"memory", "wall_seconds"},
    "import signal, time; signal.setitimer(signal.ITIMER_REAL, 0.001); time.sleep(9)": {None},
    "import os; os._exit(1)": {None},
}

#: A count that grows with each step, and lasts where the session does.
COUNT = "n = n + 1 if 'n' in globals() else 1\nn"


class Users:
    """The users of a server, and what went wrong."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        """Begin without users."""
        self.client = client
        self.wrong: list[str] = []
        self.done: Counter[str] = Counter()
        self.seconds: list[float] = []

    async def step(self, user: str, code: str) -> dict[str, object] | None:
        """Ask for a step; a request that fails is wrong."""
        began = time.monotonic()
        try:
            reply = await self.client.post("/steps", content=code, headers={"x-user": user})
            reply.raise_for_status()
            answer: dict[str, object] = reply.json()
        except (httpx.HTTPError, ValueError) as error:
            self.wrong.append(f"{user}: {code!r}: {type(error).__name__}: {error}")
            return None
        if code == COUNT:
            self.seconds.append(time.monotonic() - began)
        return answer

    async def live(self, user: str, until: float) -> None:
        """Ask for a step each `PAUSE`, and check the answers."""
        number = 0
        await asyncio.sleep(random.uniform(0, ARRIVAL))
        while time.monotonic() < until:
            if random.randrange(BAD_EACH) == 0:
                code = random.choice(list(BAD))
                answer = await self.step(user, code)
                self.done[code] += 1
                if answer is not None and answer["ended_by"] not in BAD[code]:
                    self.wrong.append(f"{user}: {code!r} was {answer}")
            answer = await self.step(user, COUNT)
            number += 1
            self.done["count"] += 1
            if answer is not None and answer["value"] != number:
                self.wrong.append(f"{user}: {number} was {answer}")
                number = answer["value"] if isinstance(answer["value"], int) else 0
            await asyncio.sleep(random.uniform(0.5, 1.5) * PAUSE)


@contextlib.contextmanager
def served() -> Iterator[tuple[int, str]]:
    """The server's process and address."""
    with tempfile.TemporaryDirectory() as directory, open(Path(directory, "log"), "w+") as log:
        command = [sys.executable, str(RECIPE), "0"]
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory)
        try:
            while not (found := re.search(r"running on (http://\S+)", Path(log.name).read_text())):
                if server.poll() is not None:
                    sys.exit(Path(log.name).read_text())
                time.sleep(0.1)
            yield server.pid, found[1]
        finally:
            server.terminate()
            server.wait()
            lines = [line for line in Path(log.name).read_text().splitlines() if "INFO" not in line]
            print("\n".join(lines[-20:]))


def used(pid: int) -> dict[str, float]:
    """The descriptors, threads and megabytes of memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return {
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": int(re.findall(r"Threads:\s+(\d+)", status)[0]),
        "MB": int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024,
    }


async def main(seconds: float, number: int) -> int:
    """Serve users for that time, and say how it went."""
    with served() as (pid, address):
        # Each user has a connection of its own, as browsers do.
        limits = httpx.Limits(max_connections=None, keepalive_expiry=KEPT)
        async with httpx.AsyncClient(base_url=address, timeout=60, limits=limits) as client:
            users, samples = Users(client), []
            until = time.monotonic() + seconds
            lives = [asyncio.create_task(users.live(f"u{n}", until)) for n in range(number)]
            while time.monotonic() < until:
                await asyncio.sleep(min(10, seconds / 20))
                samples.append(used(pid))
            await asyncio.gather(*lives)
    print("\n".join(users.wrong[:40]))
    for name, times in users.done.most_common():
        print(f"{times:6} {name!r}")
    ordered = sorted(users.seconds)
    print(f"a step: median {statistics.median(ordered) * 1000:.0f} ms,", end=" ")
    print(f"99 of 100 below {ordered[len(ordered) * 99 // 100] * 1000:.0f} ms")
    # All sessions are open after the first part.
    parts = [samples[len(samples) * n // 4 : len(samples) * (n + 1) // 4] for n in range(1, 4)]
    grown = False
    for name in samples[0]:
        medians = [statistics.median(sample[name] for sample in part) for part in parts]
        print(f"{name:12} " + " ".join(f"{median:8.1f}" for median in medians))
        grown |= medians[-1] > medians[0] * 1.05 + 4
    is_right = not users.wrong and not grown
    print("everything was right" if is_right else "FAILED")
    return not is_right


if __name__ == "__main__":
    seconds, number = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 200
    sys.exit(asyncio.run(main(seconds, number)))
