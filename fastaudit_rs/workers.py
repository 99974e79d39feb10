"""The first step of a worker of a pool: it enters the policy of the guard that started it."""

import importlib

from . import Policy
from ._native import _enter_worker, _govern


def enter(
    policy: str,
    told: tuple[str, str | None, str, list[str]],
    calls: str | None,
    module: str,
    governing: list[bytes],
    mark: str,
) -> None:
    """Enter a policy, as TOML with its words, for good."""
    package, _, name = module.rpartition(".")
    # A module that is going to run as a program must not be imported before.
    importlib.import_module(package if name.startswith("popen_") else module)
    for path in governing:
        _govern(path)
    words, written, line, unnamed = told
    host = Policy.parse_toml(written) if written is not None else None
    entered = Policy.parse_toml(policy)._told_in(words, host, line, unnamed)
    _enter_worker(entered, calls, mark)
