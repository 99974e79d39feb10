"""Give code that imports ``fastaudit`` this package, as ``pymysql.install_as_MySQLdb()`` does.

For code that cannot be changed: ``python -m fastaudit_rs.as_fastaudit -m safepyrun script.py``.
"""

import builtins
import importlib
import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Final, NoReturn

__all__ = ["install_as_fastaudit"]

# For each version the package, and the submodules that `fastaudit` has there.
_PACKAGES: "Final" = {
    "0.1": ("fastaudit_rs", ("core",)),
    "0.2": ("fastaudit_rs.v02", ("core", "hooks")),
}

_USAGE = """\
usage: python -m fastaudit_rs.as_fastaudit [--version 0.1|0.2] -m MODULE [ARGUMENT ...]
       python -m fastaudit_rs.as_fastaudit [--version 0.1|0.2] -c CODE [ARGUMENT ...]
       python -m fastaudit_rs.as_fastaudit [--version 0.1|0.2] FILE [ARGUMENT ...]

Runs a program that imports fastaudit, and gives it fastaudit_rs in its place: with the names and
rules of the fastaudit that is installed, or of 0.2, unless --version says which."""


def install_as_fastaudit(version: str | None = None) -> str:
    """Have ``import fastaudit`` give this package from now on, in this process.

    Call it before anything imports ``fastaudit``. Calling it again does nothing.

    Args:
        version: The names and rules: ``"0.2"``, those of `fastaudit_rs.v02`, or ``"0.1"``, those of
            `fastaudit_rs` itself. ``None``: those of the ``fastaudit`` that is installed, or else
            ``"0.2"``.

    Returns:
        The version.

    Raises:
        TypeError: ``version`` is not a ``str``.
        ValueError: ``version`` is another text.
        RuntimeError: ``fastaudit`` itself was imported before, or this package was installed for
            another version.

    For example::

        fastaudit_rs.install_as_fastaudit("0.2")
        from fastaudit import mk_audit  # fastaudit_rs.v02.mk_audit
    """
    if version is None:
        version = _version_of(_installed())
    if not isinstance(version, str):
        raise TypeError(f"version must be '0.1' or '0.2', not {type(version).__name__}")
    if version not in _PACKAGES:
        raise ValueError(f"version must be '0.1' or '0.2', not {version!r}")
    package, submodules = _PACKAGES[version]
    modules = {"fastaudit": importlib.import_module(package)}
    for name in submodules:
        modules[f"fastaudit.{name}"] = importlib.import_module(f"{package}.{name}")
    for name in [name for name in sys.modules if name.partition(".")[0] == "fastaudit"]:
        _check_absent(name, modules.get(name), version)
    sys.modules.update(modules)
    return version


def _installed() -> str | None:
    """The version of ``fastaudit`` that is installed."""
    # Importing it takes ten times as long as this package.
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of

    try:
        return version_of("fastaudit")
    except PackageNotFoundError:
        return None


def _version_of(release: str | None) -> str:
    """Return the version whose names and rules a release has; today's if there is no release."""
    return "0.1" if release is not None and release.startswith("0.1.") else "0.2"


def _check_absent(name: str, ours: "ModuleType | None", version: str) -> None:
    """Check that a name imports our package."""
    found = sys.modules[name]
    if found is ours:
        return
    if (getattr(found, "__name__", None) or "").partition(".")[0] == "fastaudit_rs":
        raise RuntimeError(
            f"fastaudit_rs was installed as another version of fastaudit before, not as {version}"
        )
    raise RuntimeError(
        f"{name} was imported before ({getattr(found, '__file__', None)}), and what imported it "
        "goes on using it: call install_as_fastaudit() first"
    )


def _fail(message: str) -> "NoReturn":
    print(f"{_USAGE}\n\nerror: {message}", file=sys.stderr)
    sys.exit(2)


def _main(arguments: list[str]) -> None:
    """Run the program that the command line names."""
    version = None
    if arguments[:1] in (["-h"], ["--help"]):
        print(_USAGE)
        return
    if arguments[:1] == ["--version"]:
        if len(arguments) < 2 or arguments[1] not in _PACKAGES:
            _fail("--version takes 0.1 or 0.2")
        version, arguments = arguments[1], arguments[2:]
    if not arguments or (arguments[0] in ("-m", "-c") and len(arguments) < 2):
        _fail("a module, code or a file is missing")
    if arguments[0].startswith("-") and arguments[0] not in ("-m", "-c"):
        _fail(f"unknown option {arguments[0]}")
    if version is None:
        release = _installed()
        version = _version_of(release)
        there = "no fastaudit is installed" if release is None else f"{release} is installed"
        print(f"fastaudit_rs: stands in for fastaudit {version}, as {there}", file=sys.stderr)
    install_as_fastaudit(version)
    if arguments[0] == "-m":
        sys.argv, sys.path[0] = arguments[1:], ""
        import runpy

        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *arguments[2:]], ""
        _run(arguments[1], "<string>", {})
    else:
        file = os.path.abspath(arguments[0])
        sys.argv, sys.path[0] = arguments, os.path.dirname(file)
        with io.open_code(file) as opened:
            source = opened.read()
        _run(source, file, {"__file__": file})


def _run(source: str | bytes, file: str, names: dict[str, str]) -> None:
    """Run source text as the main program."""
    main = vars(sys.modules["__main__"])
    main.clear()
    main.update(names, __name__="__main__", __builtins__=builtins)
    exec(compile(source, file, "exec", dont_inherit=True), main)


if __name__ == "__main__":
    # The module that was imported by its name, not this copy of it.
    importlib.import_module("fastaudit_rs.as_fastaudit")._main(sys.argv[1:])
