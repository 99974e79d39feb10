"""The acts of code in the order of time: files, programs and requests beside each other."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ._harmless import printable
from .requests import Request


@dataclass(frozen=True, repr=False)
class Act:
    """An act of code, or the attempt at one.

    Its ``repr()`` is one line.

    Attributes:
        time: The time in seconds since 1970; ``None`` where nobody took it.
        kind: ``"request"``, or the effect on the world, as ``docs/events.md`` names them:
            ``"write"``, ``"read"``, ``"process"``, ``"network"`` and so on; ``"changed"`` for a
            file that was found to have changed.
        target: The file, program, host or request.
        verdict: ``"allowed"``, ``"denied"`` or ``"reported"``.
        rule: The field of the policy that does not allow it.
    """

    time: float | None
    kind: str
    target: str
    verdict: str
    rule: str | None = None

    def __repr__(self) -> str:
        """Describe it in one line."""
        return printable(f"<Act {self.verdict} {self.kind} {self.target}>")


def of_decision(told: Mapping[str, Any]) -> Act:
    """A decision of a guard, a line of its log."""
    kind = told["effect"] or "unknown"
    return Act(told["time"], kind, target_of(told), told["verdict"], told["rule"])


def target_of(told: Mapping[str, Any]) -> str:
    """The target of a decision in words, or its event if it has none."""
    if "host" in told:
        return f"{told['host']}:{told['port']}" if "port" in told else str(told["host"])
    for key in ("path", "command", "variable", "module"):
        if told.get(key) is not None:
            found = told[key]
            return " ".join(map(str, found)) if isinstance(found, list) else str(found)
    return str(told["event"])


def of_request(request: Request) -> Act:
    """A request over the network."""
    target = repr(request).removeprefix("<Request ").removesuffix(">").split(": ")[0]
    if request.status is not None:
        target += f" ({request.status})"
    return Act(request.time, "request", target, request.verdict, request.rule)


def shown(acts: list[Act]) -> list[str]:
    """Return a line for each act, its time counted from the first."""
    times = [act.time for act in acts if act.time is not None]
    lines = []
    for act in acts:
        at = "" if act.time is None else f"{(act.time - times[0]) * 1000:.1f} ms"
        by = f" by {act.rule}" if act.rule else ""
        lines.append(f"{at:>12}  {act.verdict}{by}  {act.kind}  {act.target}")
    return lines
