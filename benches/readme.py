"""Puts what was measured into the README or a page, between the marks that name the target."""

from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def publish(name: str, text: str, page: Path = README) -> None:
    """Replace what is between the marks of a name.

    Raises:
        ValueError: The page has not one such pair.
    """
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    head, rest = page.read_text().split(begin)
    _, tail = rest.split(end)
    page.write_text(f"{head}{begin}{text}{end}{tail}")
