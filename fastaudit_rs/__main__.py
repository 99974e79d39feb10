"""``python -m fastaudit_rs`` is ``fastaudit-rs``."""

from .cli import script

script()
