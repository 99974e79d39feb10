"""The standard input of a step: what the host gives it, or nothing."""

import builtins
import io


def reader(given: bytes | None) -> io.TextIOWrapper:
    """Return a file with the input of a step, which ends at once if it is given none."""
    return io.TextIOWrapper(io.BytesIO(given or b""), "utf-8", "surrogateescape")


class Input:
    """The function ``input`` of the steps of a session."""

    __name__ = "input"

    def __init__(self) -> None:
        self._is_given = False

    def begin(self, given: bytes | None) -> None:
        self._is_given = given is not None

    def __call__(self, prompt: object = "", /) -> str:
        """Read a line from the standard input of the step."""
        try:
            return builtins.input(prompt)
        except EOFError:
            if self._is_given:
                raise
        raise EOFError("the step has no standard input: the host gives it with stdin=")

    def __repr__(self) -> str:
        return "<function input of the session>"
