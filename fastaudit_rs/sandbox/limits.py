"""The machine's resources that a sandbox may use."""

from dataclasses import dataclass, fields

from .. import Policy
from .._keywords import checked

_SIZES = ("memory", "disk", "output")


@checked("Limits")
@dataclass(frozen=True)
class Limits:
    """The limits of a run in a sandbox; ``None`` for no limit.

    Sizes are bytes, or texts such as ``"512M"``; M is 1,048,576.

    Attributes:
        memory: The memory that all its processes may use together; each by itself where the kernel
            cannot count them together (`Sandbox.explain` tells).
        wall_seconds: The time that it may take.
        cpu_seconds: The time that each of its processes may compute.
        cpu_percent: The part of one core that all its processes may use together, 1 to 100; of
            each core where the kernel cannot count their time together.
        processes: The number of processes that it may have at a time. Of threads there may be many
            more.
        open_files: The number of descriptors that each of its processes may have.
        disk: The bytes that may be in its directory.
        output: The bytes that it may write to its standard output and error, each.

    Raises:
        TypeError: A limit has another type.
        ValueError: It is not a positive number, or not a size.
    """

    memory: int | str | None = "2G"
    wall_seconds: float | None = 60
    cpu_seconds: int | None = None
    cpu_percent: int | None = None
    processes: int | None = 64
    open_files: int | None = 256
    disk: int | str | None = "1G"
    output: int | str | None = "10M"

    def __post_init__(self) -> None:
        """Check them, and turn sizes into bytes."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            if field.name in _SIZES:
                object.__setattr__(self, field.name, size(field.name, value))
                continue
            accepted = (int, float) if field.name == "wall_seconds" else (int,)
            if isinstance(value, bool) or not isinstance(value, accepted):
                kind = "a number" if float in accepted else "a whole number"
                raise TypeError(f"{field.name} must be {kind}, not {type(value).__name__}")
            if value <= 0:
                raise ValueError(f"{field.name} must be positive, not {value!r}")
        if self.cpu_percent is not None and self.cpu_percent > 100:
            raise ValueError(f"cpu_percent must be at most 100, not {self.cpu_percent!r}")


def size(name: str, value: object) -> int:
    """A size in bytes, as `Policy` reads ``max_bytes``.

    Raises:
        TypeError: It has another type.
        ValueError: It is not positive, or not a size.
    """
    if not isinstance(value, (int, str)):
        raise TypeError(f"{name} must be an int or a str, not {type(value).__name__}")
    try:
        found = Policy(max_bytes=value).max_bytes
    except (TypeError, ValueError) as error:
        raise type(error)(str(error).replace("max_bytes", name)) from None
    assert found is not None
    if found <= 0:
        raise ValueError(f"{name} must be positive, not {value!r}")
    return found
