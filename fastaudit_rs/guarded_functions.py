"""Guarded functions for other processes: executors, and workers of Dask and Ray."""

import functools
import importlib
import inspect
from collections.abc import Callable
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from . import Policy

P = ParamSpec("P")
R = TypeVar("R")

#: The attributes of a function, by which `inspect` takes another object for one.
_LIKE = (*functools.WRAPPER_ASSIGNMENTS, "__code__", "__defaults__", "__kwdefaults__")

#: The policy of this process's worker, if Dask or Ray has given it one.
_of_worker: Policy | None = None


class Guarded(Generic[P, R]):
    """A function that runs under a guard wherever it is called, made by `guarded`.

    It can be pickled if the function can.
    """

    def __init__(self, function: Callable[P, R], policy: Policy | None) -> None:
        if not callable(function):
            raise TypeError(f"guarded takes a function or a Policy, not {type(function).__name__}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("guarded takes no generator functions: their bodies run after the call")
        # Attributes of the function come first: it may have these names too, as a `Guarded` has.
        # Dask awaits what `inspect.iscoroutinefunction` says it may, by the code.
        functools.update_wrapper(self, function, _LIKE)
        self.function = function
        self.policy = policy

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function under a guard.

        Raises:
            AuditDenied: The guard denied something.
            RuntimeError: It has no policy, and neither has this process's worker.
        """
        policy = self.policy or _of_worker
        if policy is None:
            raise RuntimeError(
                f"{self!r} has no policy, and this worker has none: name one with "
                "guarded(policy), or give workers one by policy.worker_plugin() in Dask, "
                "by fastaudit_rs.ray.setup_hook(policy) in Ray"
            )
        guard = policy.guard()()
        # As a decorator it holds until the coroutine of a coroutine function has ended.
        return guard(self.function)(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind it to an object as a method, as functions are."""
        is_method = instance is not None and inspect.isfunction(self.function)
        return MethodType(self, instance) if is_method else self

    def __repr__(self) -> str:
        return f"<guarded {getattr(self.function, '__qualname__', self.function)}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickle it: by its name, if a decorator put it in the function's place."""
        name = getattr(self.function, "__qualname__", "")
        module = getattr(self.function, "__module__", None)
        if module is not None and _named(module, name) is self:
            return cast(str, name)
        return type(self), (self.function, self.policy)


def _named(module: str, name: str) -> object:
    found: object = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


@overload
def guarded(what: Policy, /) -> Callable[[Callable[P, R]], Guarded[P, R]]: ...


@overload
def guarded(what: Callable[P, R], /) -> Guarded[P, R]: ...


def guarded(what: Any, /) -> Any:
    """Guard a function in whatever process calls it: in a pool, or on a worker of Dask or Ray.

    ``@guarded(policy)`` gives the function a policy. ``@guarded`` takes the policy of the worker
    that calls it (`Policy.worker_plugin`, `fastaudit_rs.ray.setup_hook`).

    Args:
        what: A policy, or a function or coroutine function.

    Returns:
        A decorator, or the guarded function. A denial is an `AuditDenied` where you ask for the
        result, with all its fields.

    Raises:
        TypeError: ``what`` is something else, or a generator function.

    Examples:
        >>> @guarded(Policy(write=["/srv/out"]))
        ... def total(numbers):
        ...     return sum(numbers)
        >>> total([1, 2])
        3
    """
    if isinstance(what, Policy):
        return lambda function: Guarded(function, what)
    return Guarded(what, None)


def set_worker_policy(policy: Policy | None) -> None:
    """Set the policy of this process's worker."""
    global _of_worker
    _of_worker = policy
