"""connect(2) where neither an address of the internet nor the path of a Unix socket is named.

`sandlock` answers the others for the code, and leaves these to the kernel, which reads the address
and finds the socket again. Another thread may have changed both by then, so that the kernel would
connect to an address that nobody judged. The host answers these too.
"""

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any

from ...._native import _descriptor_of, _disconnect

#: The greatest size of an address: sockaddr_storage of <sys/socket.h>.
ADDRESS = 128


class Unaddressed:
    """Answers the kernel's questions about connecting that `sandlock` does not answer."""

    calls = ("connect",)

    def answer(self, _name: str, ctx: Any) -> int:
        """Disconnect a socket, and return 0; or return the number of an error."""
        told = read_address(ctx)
        if isinstance(told, int):
            return told
        try:
            return disconnected(ctx, family_of(told))
        except OSError as error:
            return error.errno or errno.EPERM


def disconnected(ctx: Any, family: int) -> int:
    """Disconnect a socket, if that is asked for; return 0, or the number of an error."""
    if family != socket.AF_UNSPEC:
        return errno.EACCES
    with taken(ctx) as guest:
        _disconnect(guest.fileno())
    return 0


def read_address(ctx: Any) -> bytes | int:
    """Read the address that is connected to, once; or return the number of an error."""
    told: bytes | None = ctx.read(ctx.args[1], min(ctx.args[2] & 0xFFFFFFFF, ADDRESS))
    if told is None:
        return errno.EFAULT
    return errno.EINVAL if len(told) < 2 else told


def family_of(address: bytes) -> int:
    (family,) = struct.unpack_from("=H", address)
    return int(family)


@contextlib.contextmanager
def taken(ctx: Any) -> Iterator[socket.socket]:
    """A descriptor of ours for the socket that is to connect; both share its options."""
    descriptor = _descriptor_of(ctx.pid, ctx.args[0] & 0x7FFFFFFF)
    blocks = os.get_blocking(descriptor)
    try:
        guest = socket.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        raise
    with guest:
        # A host may have a default timeout, which its sockets do not block with.
        os.set_blocking(descriptor, blocks)
        # The caller is still there: the number of its thread is not another's.
        if ctx.read(ctx.args[1], 1) is None:
            raise PermissionError(errno.EPERM, "its process has ended")
        yield guest
