"""The first step of a worker of a pool: it enters the policy of the guard that started it."""

import importlib

from . import Policy
from ._native import _enter_worker, _govern


def enter(policy: str, calls: str | None, module: str, governing: list[bytes], mark: str) -> None:
    """Enter a policy, as TOML, for good."""
    package, _, name = module.rpartition(".")
    # A module that is going to run as a program must not be imported before.
    importlib.import_module(package if name.startswith("popen_") else module)
    for path in governing:
        _govern(path)
    _enter_worker(Policy.parse_toml(policy), calls, mark)
