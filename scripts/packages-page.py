"""Writes the packages and variables of src/policy/packages.toml into docs/packages.md."""

import sys
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # before 3.11
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "packages.md"
BEGIN, END = "<!-- packages -->\n", "<!-- end -->\n"


def table():
    """The names of the packages, and the variables of those that have some."""
    text = (ROOT / "src/policy/packages.toml").read_text(encoding="utf-8")
    packages = sorted(tomllib.loads(text).items(), key=lambda item: item[0].lower())
    names = ", ".join(f"`{name}`" for name, _ in packages)
    rows = "| package | may set |\n|---|---|\n"
    for name, package in packages:
        if "env" in package:
            rows += f"| `{name}` | {' '.join(f'`{each}`' for each in package['env'])} |\n"
    return f"{names}.\n\n{rows}"


def page():
    """The page as it has to be."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


def main():
    """Write it, or with `--check` say whether it is as it has to be."""
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.read_text(encoding="utf-8") == page() else "make packages-page"
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
