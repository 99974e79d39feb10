"""Errors of sessions and sandboxes."""


class SandboxError(RuntimeError):
    """A sandbox cannot run code as requested."""


class ProcessEnded(SandboxError):
    """The process of a session had ended before it was asked for something."""


#: The errors of a session that cannot run a step here or now, and of a snapshot that is no more.
FOREIGN = "the session is one of another process: make one in this process"
BUSY = (
    "the session runs a step already: wait for its end, or call interrupt(); a SessionManager "
    "queues steps"
)
GIVEN_UP = (
    "a step that could not be interrupted still runs: wait for its end, or call reset(), which "
    "leaves it its thread and starts another"
)
CLOSED = "the snapshot is closed: by its close(), or by reset() of the session"
