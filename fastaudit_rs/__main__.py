"""``python -m fastaudit_rs`` is ``fastaudit-rs``."""

from .tools.cli import script

if __name__ == "__main__":
    script()
