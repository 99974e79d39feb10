"""The words for what fails: they hold nothing that a server said, which may be a secret."""

import asyncio
import os
import socket
import ssl

#: A request of the code that is none, or none that all servers understand alike.
MALFORMED = "the request is malformed"


class Failed(Exception):
    """A failure, in words of this package."""


def why(error: BaseException) -> str:
    """Return the reason of a failure, in words that no server chooses."""
    if isinstance(error, Failed):
        return str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not valid: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS fails: {error.reason}"
    # Before 3.11 these are two classes.
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        return "it took too long"
    if isinstance(error, socket.gaierror):
        return str(error.strerror)
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return type(error).__name__
