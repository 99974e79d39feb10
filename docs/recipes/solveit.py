"""Solveit's `pyrun` with this guard: safepyrun runs the code, ours is the fastaudit under it."""

import asyncio
import sys
from typing import Any

import fastaudit_rs

fastaudit_rs.install_as_fastaudit("0.2")  # before anything imports fastaudit

from safepyrun import RunPython  # noqa: E402  # pyright: ignore[reportMissingImports]


async def main() -> None:
    """Run what a model wrote."""
    pyrun: Any = RunPython()
    print(sys.modules["fastaudit"].__name__)
    print(await pyrun("sum(range(10))"))
    for code in (
        "import shutil; shutil.rmtree('/srv/data')",
        "import subprocess; subprocess.run(['git', 'push', '--force'])",
    ):
        try:
            await pyrun(code)
        except PermissionError as denied:
            print("stopped:", str(denied).splitlines()[0])


if __name__ == "__main__":
    asyncio.run(main())
