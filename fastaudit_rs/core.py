"""The names of ``fastaudit.core``, so that replacing the import is all that a user does."""

from ._native import mk_audit

__all__ = ["mk_audit"]
