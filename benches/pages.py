"""Puts measurements into a page of the docs, between the marks that name them."""

from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
PERFORMANCE = DOCS / "performance.md"
ASSURANCE = DOCS / "assurance.md"


def publish(name: str, text: str, page: Path) -> None:
    """Replace the text between the marks of a name.

    Raises:
        ValueError: The page has not one such pair.
    """
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    head, rest = page.read_text().split(begin)
    _, tail = rest.split(end)
    page.write_text(f"{head}{begin}{text}{end}{tail}")
