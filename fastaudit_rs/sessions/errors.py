"""Errors of sessions and sandboxes."""


class SandboxError(RuntimeError):
    """A sandbox cannot run code as requested."""


class ProcessEnded(SandboxError):
    """The process of a session had ended before it was asked for something."""
