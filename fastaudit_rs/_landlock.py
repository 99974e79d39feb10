"""The version of the kernel's Landlock, and what it lacks before Linux 6.12: landlock(7)."""

from ._native import Policy, _landlock_version

#: The first version that holds all that a policy asks of it.
WHOLE = 6

#: The first version that holds ports of TCP.
PORTS = 4

#: What older versions lack: the first one that has it, with its Linux.
LACKING = {
    "truncating files": (3, "6.2"),
    "ports of TCP": (PORTS, "6.7"),
    "requests for devices": (5, "6.10"),
    "abstract Unix sockets": (6, "6.12"),
}


def version() -> int:
    """Return the version of its interface; below 1 without Landlock."""
    return _landlock_version()


def lacking(policy: Policy) -> str:
    """What the kernel cannot hold of a policy, in words; empty if it is all held."""
    wanted = {"truncating files", "requests for devices"} if policy.write is not None else set()
    network = policy.network
    if network is False:
        wanted |= {"ports of TCP", "abstract Unix sockets"}
    elif not isinstance(network, bool) and network.listen is False:
        wanted.add("ports of TCP")
    found = version()
    return ", ".join(
        f"{name} (Linux {linux})"
        for name, (first, linux) in LACKING.items()
        if name in wanted and first > found
    )
