"""``Policy.call``: a function on a thread of its own that a guard and the kernel confine."""

import contextvars
import functools
import os
import sys
import sysconfig
import threading
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from . import AuditPerms, Policy, _landlock
from ._native import _Confinement

#: Files that the libraries under Python read, wherever Python code may: to find others, hosts,
#: time.
SYSTEM = (
    *("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec"),
    *("/usr/local/lib", "/etc/ld.so.cache", "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf"),
    # Where musl searches libraries: it finds none if it may not read the one that is there.
    *("/etc/ld-musl-x86_64.path", "/etc/ld-musl-aarch64.path"),
    *("/etc/host.conf", "/etc/gai.conf", "/etc/services", "/etc/protocols", "/etc/localtime"),
    *("/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf", "/usr/share/zoneinfo"),
    *("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"),
)

#: What the C library reads to name users and groups: getpwnam(3). The kernel opens these files;
#: Python code may not, as in a guard without the kernel.
USERS = ("/etc/passwd", "/etc/group")


def call(
    policy: Policy,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
) -> Any:
    """Call a function as ``policy.call(function, *args, **kwargs)`` does."""
    if not callable(function):
        raise TypeError(f"function must be callable, not {type(function).__name__}")
    places = (*(policy.write or ()), *(policy.read or ()), *policy.block)
    path = () if policy.read is None else tuple(sys.path)
    audit_perms, held = _rings(policy, tuple(map(os.path.realpath, places)), path)
    value: Any = None
    error: BaseException | None = None

    def run() -> None:
        nonlocal value, error
        try:
            held.enter()
            with audit_perms():
                value = function(*args, **(kwargs or {}))
        except BaseException as raised:
            error = raised

    context = contextvars.copy_context()
    name = f"confined {getattr(function, '__name__', '')}".rstrip()
    thread = threading.Thread(target=context.run, args=(run,), name=name, daemon=True)
    thread.start()
    thread.join()
    if error is None:
        return value
    try:
        raise error
    finally:
        # The traceback has this frame: a cycle.
        error = None


@functools.lru_cache(maxsize=64)
def _rings(
    policy: Policy, places: tuple[str, ...], path: tuple[str, ...]
) -> tuple[AuditPerms, _Confinement]:
    """Return what makes guards of a policy, and the part of the policy that the kernel holds.

    Making them takes longer than a call; they are made anew if a place leads elsewhere now.
    """
    audit_perms = policy.guard()
    return audit_perms, confinement(policy, audit_perms._temporary_directory(), path)


def confinement(
    policy: Policy,
    temporary: str | None,
    path: Iterable[str],
    places: Iterable[str] = (),
    ports: Iterable[int] = (),
) -> _Confinement:
    """Return the part of a policy that the kernel holds, for modules of this ``path``.

    Whatever the policy says, the directory for temporary files can be written, these ``places`` can
    be read, and these ``ports`` of TCP are free.
    """
    if _landlock.version() > 0 and (lacking := _landlock.lacking(policy)):
        warnings.warn(
            f"fastaudit_rs: the kernel does not hold all of the policy: it lacks {lacking}. "
            "A Sandbox holds it all",
            stacklevel=4,
        )
    if temporary is not None and policy.write is not None:
        # The kernel knows only the files that exist when it is told of a place.
        policy = policy.replace(write=[*policy.write, temporary])
    read = [] if policy.read is None else [*needed(path), *USERS, *places]
    return _Confinement(policy, read, ports)


def needed(path: Iterable[str]) -> list[str]:
    """Return the places that the interpreter and the libraries under it load from themselves.

    Each rule costs time in each call: a path below another one is left out.
    """
    paths = sysconfig.get_paths()
    modules = (paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    all_of_them = (*path, *modules, os.path.join(sys.base_prefix, "lib"), *SYSTEM)
    found: list[str] = []
    for entry in sorted({os.path.realpath(entry) for entry in all_of_them}):
        if os.path.exists(entry) and not any(entry.startswith(f"{above}/") for above in found):
            found.append(entry)
    return found
