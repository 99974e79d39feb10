"""Run snippets of the kind a language model writes under a guard, and show what happened.

Exits with 1 if an ordinary snippet was stopped, an overreaching one ran that this Python tells of,
or anything outside the workspace changed.
"""

import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text
from snippets import ORDINARY, OVERREACH, TOLD_SINCE

import fastaudit_rs
from fastaudit_rs import mk_audit


def allow_echo(event, args, frame, msg, data):
    """Allow the one command that this host trusts."""
    return event == "subprocess.Popen" and args[1][:1] == ["echo"]


def outside(home: Path) -> dict[str, str]:
    """Every file outside the workspace that a snippet is after, with its content."""
    return {
        str(path): path.read_text() for path in sorted(home.parent.glob("*")) if path.is_file()
    } | {str(path): path.read_text() for path in sorted(home.rglob("*")) if path.is_file()}


def run(code: str, audit_perms: fastaudit_rs.AuditPerms) -> str | None:
    """Run a snippet under a guard; the message of the denial that stopped it, if one did."""
    compiled = compile(code, "<snippet>", "exec")
    try:
        with audit_perms():
            exec(compiled, {"__name__": "snippet"})
    except PermissionError as error:
        return str(error)
    return None


def main() -> int:
    """Run all snippets and print the table."""
    base = Path(tempfile.mkdtemp(prefix="demo-")).resolve()
    home, workspace = base / "home", base / "workspace"
    home.mkdir()
    workspace.mkdir()
    (home / ".bashrc").write_text("# mine\n")
    (home / "notes.txt").write_text("keep\n")
    os.environ["HOME"] = str(home)
    os.chdir(workspace)
    audit_perms = mk_audit(["."], before_deny=allow_echo)

    before, wrong, unseen = outside(home), 0, 0
    table = Table(title=f"exec(snippet) under mk_audit(['.']), Python {sys.version.split()[0]}")
    table.add_column("Snippet", no_wrap=True)
    table.add_column("Outcome", no_wrap=True)
    table.add_column("Message of the PermissionError", overflow="fold")
    for snippets, expected in ((ORDINARY, "ran"), (OVERREACH, "stopped")):
        for name, code in snippets.items():
            message = run(code, audit_perms)
            outcome = "ran" if message is None else "stopped"
            style = "green" if outcome == expected else "bold red"
            shown = (message or "").replace(str(base), "…")
            since = TOLD_SINCE.get(name, (3,))
            if outcome != expected and sys.version_info < since:
                unseen += 1
                style, shown = "yellow", f"not seen before Python {since[0]}.{since[1]}"
            else:
                wrong += outcome != expected
            table.add_row(Text(name), Text(outcome, style), Text(shown))
        table.add_section()
    Console(width=None if sys.stdout.isatty() else 120).print(table)

    changed = outside(home) != before
    print(
        f"{len(ORDINARY)} ordinary, {len(OVERREACH)} overreaching, {wrong} not as expected"
        + (f", {unseen} not seen by this Python;" if unseen else ";"),
        end=" ",
    )
    print("files outside the workspace:", "CHANGED" if changed else "unchanged")
    return 1 if wrong or changed else 0


if __name__ == "__main__":
    sys.exit(main())
