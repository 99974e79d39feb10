"""Programs that cells start: ``!command``, ``x = !command``, ``%%bash`` and its like."""

import asyncio
import subprocess
import threading
from collections.abc import Callable
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.text import LSString, SList


class CellPrograms:
    """Stands in for the functions of a kernel's shell by which cells start programs."""

    def __init__(self, shell: InteractiveShell, is_guarded: Callable[[], bool]) -> None:
        self._shell = shell
        self._is_guarded = is_guarded
        self._system: Callable[[str], None] = shell.system
        self._getoutput: Callable[..., Any] = shell.getoutput

    def system(self, cmd: str) -> None:
        """Run a shell's command, as ``!cmd`` does.

        Kernels fork a terminal for it, which no guard can allow: they have threads.
        """
        if not self._is_guarded():
            self._system(cmd)
            return
        with _started(self._shell.var_expand(cmd, depth=1)) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    print(line, end="", flush=True)
            except BaseException:
                process.kill()
                raise
        self._shell.user_ns["_exit_code"] = process.returncode

    def getoutput(self, cmd: str, split: bool = True, depth: int = 0) -> SList | LSString:
        """Give the output of a shell's command, as ``x = !cmd`` does, by the shell of ``!cmd``."""
        if not self._is_guarded():
            output: SList | LSString = self._getoutput(cmd, split=split, depth=depth + 1)
            return output
        with _started(self._shell.var_expand(cmd, depth=depth + 1)) as process:
            text = process.communicate()[0]
        self._shell.user_ns["_exit_code"] = process.returncode
        return SList(text.splitlines()) if split else LSString(text)

    def start_thread(self) -> None:
        """Start the thread in which ``%%bash`` and its like run.

        IPython starts it with the first of them. A guard of that cell would hold for all others.
        """
        script = self._shell.magics_manager.magics["cell"].get("script")
        magics: Any = getattr(script, "__self__", None)
        if getattr(magics, "event_loop", magics) is None:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, daemon=True).start()
            magics.event_loop = loop


def _started(command: str) -> "subprocess.Popen[str]":
    """A shell that runs a command, with all its output in one pipe."""
    return subprocess.Popen(
        command,
        shell=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
