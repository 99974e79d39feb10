"""The acts of code in the order of time: files, programs and requests beside each other.

A request is one over the network, as the host of a sandbox saw it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ._text import printable


@dataclass(frozen=True, repr=False)
class Request:
    """A request, or a connection whose content the host does not read; as text one line.

    Attributes:
        host: The name that was asked for, or the address.
        port: The port; ``None`` for a name that was only looked up.
        method: The method of an HTTP request; ``None`` where the host reads no HTTP: TLS, and other
            protocols.
        path: The path of an HTTP request, without its query: that may hold secrets.
        status: The status of the answer; ``None`` if the host reads none.
        sent: The bytes of the content that the sandbox sent: the body of a request, or all of a
            connection.
        received: The same of the answer.
        verdict: ``"allowed"``, or ``"denied"``: nothing was sent then.
        rule: The field of the policy that denied it, ``"secrets"`` where a secret would have been
            sent without TLS; ``None`` if none did.
        error: The reason that an allowed request failed on the way; ``None`` if it did not.
        time: The time when it began, in seconds since the epoch.
        duration: The time that it took, in seconds, up to its end or that of the run.
    """

    host: str
    port: int | None
    method: str | None
    path: str | None
    status: int | None
    sent: int
    received: int
    verdict: Literal["allowed", "denied"]
    rule: str | None
    error: str | None
    time: float
    duration: float

    def __repr__(self) -> str:
        return f"<Request {self}>"

    def __str__(self) -> str:
        place = f"[{self.host}]" if ":" in self.host else self.host
        where = place if self.port is None else f"{place}:{self.port}"
        request = " ".join(filter(None, (self.method, f"{where}{self.path or ''}")))
        if self.verdict == "denied":
            return f"{request}: denied by {self.rule}"
        told = [] if self.status is None else [str(self.status)]
        told += [] if self.error is None else [self.error]
        told.append(f"{self.sent} bytes sent, {self.received} received")
        return f"{request}: {', '.join(told)}, {self.duration:.2f} s"


@dataclass(frozen=True, repr=False)
class Act:
    """An act of code, or the attempt at one; its ``repr()`` is one line.

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
        return printable(f"<Act {self.verdict} {self.kind} {self.target}>")


def of_decision(told: Mapping[str, Any]) -> Act:
    """A decision of a guard, a line of its log."""
    effect = told["effect"]
    # Code in a sandbox words it: what the host saw itself has other kinds.
    kind = effect if effect not in (None, "", "request", "changed") else "unknown"
    target = target_of(told) or str(told["event"])
    return Act(told["time"], kind, target, told["verdict"], told["rule"])


def target_of(told: Mapping[str, Any]) -> str | None:
    """The target of a decision or of a recorded effect; ``None`` if it names none."""
    if (host := told.get("host")) is not None:
        # A recording has the port in the address of a socket alone, or beside the host.
        ports = (arg[1] for arg in told.get("args", ()) if isinstance(arg, list) and len(arg) > 1)
        port = told.get("port", next(ports, None))
        return f"{host}:{port}" if isinstance(port, int) else str(host)
    for key in ("path", "command", "variable", "module"):
        if (found := told.get(key)) is not None:
            return " ".join(map(str, found)) if isinstance(found, list) else str(found)
    return None


def of_request(request: Request) -> Act:
    """A request over the network."""
    target = str(request).split(": ")[0]
    if request.status is not None:
        target += f" ({request.status})"
    return Act(request.time, "request", target, request.verdict, request.rule)


def milliseconds(seconds: float) -> str:
    """A time in a column of times."""
    return f"{seconds * 1000:.1f} ms"


def shown(acts: list[Act]) -> list[str]:
    """Return a line for each act, its time counted from the first."""
    times = [act.time for act in acts if act.time is not None]
    lines = []
    for act in acts:
        at = "" if act.time is None else milliseconds(act.time - times[0])
        by = f" by {act.rule}" if act.rule else ""
        lines.append(f"{at:>12}  {act.verdict}{by}  {act.kind}  {act.target}")
    return lines
