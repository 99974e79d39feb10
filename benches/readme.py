"""Puts what was measured into the README, between the marks that name the target."""

from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def publish(name: str, text: str) -> None:
    """Replace what is between the marks of a name.

    Raises:
        ValueError: The README has not one such pair.
    """
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    head, rest = README.read_text().split(begin)
    _, tail = rest.split(end)
    README.write_text(f"{head}{begin}{text}{end}{tail}")
