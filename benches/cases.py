"""The cases of the benchmark: what each is, and what it should cost at most."""

from dataclasses import dataclass

# The order of the columns. `bare` is Python alone; `ours 0.2` has the rules of fastaudit 0.2;
# `floor` is an audit hook and a call monitor in C that do nothing.
IMPLEMENTATIONS = ("bare", "0.1.0", "0.2.10", "ours", "ours 0.2", "floor")


@dataclass(frozen=True)
class Goal:
    """At most so many times what another takes (`of`), or so many nanoseconds (`of=""`)."""

    limit: float
    of: str = ""

    def __str__(self) -> str:
        """As the table shows it."""
        if not self.of:
            return f"≤ {show(self.limit)}"
        if self.limit < 1:
            return f"≤ 1/{1 / self.limit:.0f} of {self.of}"
        return f"≤ {self.limit:g} × {self.of}"


@dataclass(frozen=True)
class Case:
    """A row of the table.

    `net`: whether what the bare operation takes is taken off. Ratios to `bare` are of whole times.
    """

    key: str
    title: str
    goal: Goal
    net: bool = True


CASES = [
    Case("event", "an event, no guard active", Goal(1.2, "floor")),
    Case("ignored", "an ignored event under a guard", Goal(1.7, "floor")),
    Case("read", "`open` for reading under a guard", Goal(1 / 10, "0.1.0")),
    Case("write", "`open` for writing, five levels under a root", Goal(1 / 8, "0.1.0")),
    Case("remove", "a denied `os.remove`, caught", Goal(1 / 3, "0.1.0")),
    Case("system", "a denied `os.system`, caught", Goal(1 / 2, "0.1.0")),
    Case("suppressed", "a native call that `on_call` suppresses", Goal(1 / 4, "0.1.0")),
    Case("outside", "a native call, no guard active", Goal(5)),
    Case("builtin", "a builtin call, watched", Goal(30)),
    Case("builtin-plain", "a builtin call, nothing native loaded", Goal(5)),
    Case("work", "compile and run a short cell, watched", Goal(1.4, "bare"), net=False),
    Case("work-plain", "the same, nothing native loaded", Goal(1.4, "bare"), net=False),
    Case("enter-watched", "enter and exit, with monitoring", Goal(1.3, "floor")),
    Case("enter", "enter and exit, without", Goal(400)),
    Case("make", "make, enter and exit, without", Goal(1 / 3, "0.1.0")),
    Case("import", "import", Goal(5_000_000)),
    Case("programs-plain", "whole programs, nothing native loaded", Goal(1.15, "bare"), net=False),
    Case("programs", "whole programs, watched", Goal(1.15, "bare"), net=False),
    Case("programs-retire", "whole programs, `retire_sites=True`", Goal(1.15, "bare"), net=False),
]

PROGRAMS = (
    "richards",
    "deltablue",
    "nbody",
    "json_dumps",
    "regex_compile",
    "regex_effbot",
    "chaos",
    "go",
)


# Measurements under other conditions: nothing native loaded, call sites retired.
CONDITIONS = ("", "-plain", "-retire")


def show(nanoseconds: float) -> str:
    """A time, with three digits and its unit."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(nanoseconds) >= size:
            value = nanoseconds / size
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
    return f"{nanoseconds:.0f} ns"
