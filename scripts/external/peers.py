"""Runs case.py under a package like ours: `peers.py NAME`, in the directory of the case.

Each has the rights that its README begins with: to read what Python needs, and to write here.
"""

import os
import sys

CASE = "case.py"


def by_fastaudit(code: str) -> None:
    """In this process, under an audit hook."""
    from fastaudit import mk_audit

    with mk_audit(["."])():
        exec(compile(code, CASE, "exec"), {"__name__": "__main__"})


def by_sandlock(code: str) -> None:
    """In another process, held by the kernel."""
    from sandlock import Sandbox

    system = ["/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/dev"]
    python = [sys.prefix, sys.base_prefix]
    here = [os.getcwd()]
    readable = [name for name in [*system, *python, *here] if os.path.isdir(name)]
    done = Sandbox(fs_readable=readable, fs_writable=here).run([sys.executable, CASE])
    sys.stdout.write(done.stdout.decode(errors="replace"))
    sys.stderr.write(done.stderr.decode(errors="replace"))
    sys.exit(done.exit_code)


def by_smolagents(code: str) -> None:
    """In an interpreter of Python in Python, with the modules that it allows, and `typing`."""
    from smolagents.local_python_executor import LocalPythonExecutor

    executor = LocalPythonExecutor(["typing"])
    executor.send_tools({})
    try:
        executor(code)
    finally:
        print(executor.state.get("_print_outputs", ""))


def by_monty(code: str) -> None:
    """In an interpreter of a part of Python, in another process."""
    import pydantic_monty

    with pydantic_monty.Monty() as monty, monty.checkout() as session:
        session.feed_run(code)


if __name__ == "__main__":
    _, name, *packages = sys.argv
    # Where a release is that cannot be installed beside another.
    sys.path[:0] = packages
    with open(CASE) as file:
        text = file.read()
    globals()[f"by_{name}"](text)
