"""System calls that fail in this process and its children, as in a container: seccomp(2)."""

import ctypes
import struct

#: The same on all machines: the newer system calls have one number.
OPENAT2, PIDFD_GETFD, FACCESSAT2 = 437, 438, 439

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2

#: Instructions of the filter: bpf(4), and its verdicts.
LOAD, EQUALS, RETURN = 0x20, 0x15, 0x06
ERRNO, ALLOW = 0x00050000, 0x7FFF0000


def deny(number, errno):
    """Have this system call fail with this error from now on."""
    steps = [
        (LOAD, 0, 0, 0),
        (EQUALS, 0, 1, number),
        (RETURN, 0, 0, ERRNO | errno),
        (RETURN, 0, 0, ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, FILTER, program, 0, 0)):
        if prctl(*arguments):
            raise OSError(ctypes.get_errno(), "prctl")
