"""Writes docs/native-code.md, from the tables of `tests/support`."""

import sys
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # before 3.11
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "native-code.md"

HEAD = """\
# Native code, and who sees it

<!-- Made from native_{functions,ways}.toml in tests/support by `make native-code-page`. -->

These lists complete the rows of [limits](limits.md). Tests run them on each version of Python, and
fail if an item is wrong or a native function of the standard library is missing.

"""

WAYS = """\
## Ways to reach native code

A guard stops other packages' native code if code reaches it in a way of the first row. It misses
the other ways; `calls="callee"` stops many of them. `f` is a native function, `n` an instance of a
native class.

"""

FUNCTIONS = """\
## Native functions of the standard library

The guard does not stop these. The others with effects raise an [audit event](events.md) before
they act, or act on an object that was judged when it was opened.

"""


def read(name):
    """A table of the tests."""
    return tomllib.loads((ROOT / "tests/support" / name).read_text(encoding="utf-8"))


def code(names):
    """Names as code, with commas between them."""
    return ", ".join(f"`{name}`" for name in names)


def ways():
    """The ways in which Python code reaches native code."""
    table = read("native_ways.toml")
    text = WAYS + "| row | way |\n|---|---|\n"
    text += f"| stopped | {', '.join(table['seen'])} |\n"
    for row, names in table["limits"].items():
        named = [name + until(way) for name, way in names.items()]
        text += f"| `{row}` | {', '.join(named)} |\n"
    return text + "\n"


def until(way):
    """The versions on which it runs unseen, where those are not all."""
    last = way.get("until") if isinstance(way, dict) else None
    return f" (up to 3.{last})" if last else ""


def functions():
    """The native functions of the standard library."""
    table = read("native_functions.toml")
    del table["pure"]
    rows = {}
    for module, says in table.items():
        whole = f"{module}." if module != "builtins" else ""
        for name, call in says.get("limits", {}).items():
            rows.setdefault(call[0], []).append(whole + name)
    text = FUNCTIONS + "| row | functions |\n|---|---|\n"
    return text + "".join(f"| `{row}` | {code(sorted(each))} |\n" for row, each in rows.items())


def page():
    """The page as it has to be."""
    return HEAD + ways() + functions()


def main():
    """Write it, or with `--check` say whether it is as it has to be."""
    if "--check" in sys.argv[1:]:
        is_so = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page()
        return 0 if is_so else "make native-code-page"
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
