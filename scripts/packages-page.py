"""Writes the table of declared packages into docs/packages.md, from src/policy/packages.toml."""

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
    """One row for each package."""
    packages = tomllib.loads((ROOT / "src/policy/packages.toml").read_text(encoding="utf-8"))
    rows = "| package | why | may set |\n|---|---|---|\n"
    for name, package in sorted(packages.items(), key=lambda item: item[0].lower()):
        env = " ".join(f"`{each}`" for each in package.get("env", ()))
        rows += f"| `{name}` | {package['why']} | {env} |\n"
    return rows


def page():
    """The page with the table as it has to be."""
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
