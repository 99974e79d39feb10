"""A request that code in a sandbox made over the network, as the host saw it."""

from dataclasses import dataclass
from typing import Literal


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
        rule: The field of the policy that denied it; ``None`` if none did.
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
