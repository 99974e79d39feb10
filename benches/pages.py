"""Puts measurements into a page of the docs, between the marks that name them."""

from collections.abc import Sequence
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
PERFORMANCE = DOCS / "performance.md"
ASSURANCE = DOCS / "assurance.md"


def table(rows: Sequence[Sequence[str]], others: str = "---") -> str:
    """Rows of cells as Markdown, the first one as the head; `others` rules all but one column."""
    ruled = [rows[0], ["---", *[others] * (len(rows[0]) - 1)], *rows[1:]]
    return "".join(f"| {' | '.join(row)} |\n" for row in ruled)


def publish(name: str, text: str, page: Path) -> None:
    """Replace the text between the marks of a name.

    Raises:
        ValueError: The page has not one such pair.
    """
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    head, rest = page.read_text().split(begin)
    _, tail = rest.split(end)
    page.write_text(f"{head}{begin}{text}{end}{tail}")
