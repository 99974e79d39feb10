"""The names of ``fastaudit.core``, so that a user need only replace the import."""

from ._native import mk_audit

__all__ = ["mk_audit"]
