"""The names of ``fastaudit.hooks`` 0.2."""

from .._native import _lxml_monitor as lxml_monitor

__all__ = ["lxml_monitor"]
