"""Give code that imports ``fastaudit`` this package, as ``pymysql.install_as_MySQLdb()`` does.

For code that cannot be changed: ``python -m fastaudit_rs.as_fastaudit -m safepyrun script.py``.
"""

import importlib
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Final

__all__ = ["install_as_fastaudit"]

# For each version the package, and the submodules that `fastaudit` has there.
_PACKAGES: "Final" = {
    "0.1": ("fastaudit_rs", ("core",)),
    "0.2": ("fastaudit_rs.v02", ("core", "hooks")),
}


def install_as_fastaudit(version: str | None = None) -> str:
    """Have ``import fastaudit`` give this package in this process; return the version.

    Call it before anything imports ``fastaudit``. Calling it again does nothing.

    Args:
        version: The names and rules: ``"0.2"``, those of `fastaudit_rs.v02`, or ``"0.1"``, those of
            `fastaudit_rs` itself. ``None``: those of the ``fastaudit`` that is installed, or else
            ``"0.2"``.

    Raises:
        TypeError: ``version`` is not a ``str``.
        ValueError: ``version`` is another text.
        RuntimeError: ``fastaudit`` itself was imported before, or this package was installed for
            another version.

    For example:

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
    # Importing it takes ten times as long as this package.
    from importlib.metadata import PackageNotFoundError, version as version_of

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


def _main(arguments: list[str]) -> None:
    """Run the program that the command line names."""
    import argparse

    from .programs import prepare, split

    parser = argparse.ArgumentParser(
        prog="python -m fastaudit_rs.as_fastaudit",
        usage="%(prog)s [--version 0.1|0.2] (-m MODULE | -c CODE | FILE) [ARGUMENT ...]",
        description="Run a program that imports fastaudit, and give it fastaudit_rs in its place.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version",
        nargs="?",
        const="",
        metavar="0.1|0.2",
        help="the names and rules; by default those of the fastaudit that is installed, or of 0.2",
    )
    parser.add_argument("-m", metavar="MODULE", nargs="?", help="run a module")
    parser.add_argument("-c", metavar="CODE", nargs="?", help="run this code")
    line = split(arguments, {"--version"})
    options, unknown = parser.parse_known_args(line.own)
    version = options.version
    if version is not None and version not in _PACKAGES:
        parser.error("--version takes 0.1 or 0.2")
    if unknown := [*unknown, *line.interpreter]:
        parser.error(f"unknown option {unknown[0]}")
    if not line.program:
        parser.error("a module, code or a file is missing")
    if version is None:
        release = _installed()
        version = _version_of(release)
        there = "no fastaudit is installed" if release is None else f"{release} is installed"
        print(f"fastaudit_rs: stands in for fastaudit {version}, as {there}", file=sys.stderr)
    install_as_fastaudit(version)
    try:
        program = prepare(line.kind, line.program)
    except OSError as error:
        parser.error(str(error))
    program()


if __name__ == "__main__":
    # The module that was imported by its name, not this copy of it.
    importlib.import_module("fastaudit_rs.as_fastaudit")._main(sys.argv[1:])
