"""`recv` and `send` of the loop that answers whom there is no place for, without giving the interpreter lock away.

Python gives it away in each call on a socket, and has it back from a busy thread only after the switch interval: some
two dozen futexes for one refusal, and as many turns at the lock that the threads in the middle of a page lose. A call
that never blocks has no need of it.
"""

from __future__ import annotations

import ctypes
import os
import socket

_LIBC = ctypes.PyDLL(None, use_errno=True)
_LIBC.recv.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_LIBC.recv.restype = ctypes.c_ssize_t
_LIBC.send.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int)
_LIBC.send.restype = ctypes.c_ssize_t
_BUFFER = ctypes.create_string_buffer(65_536)


def recv(sock: socket.socket) -> bytes:
    """What has come, at most 65,536 bytes; nothing when the other side has ended. Not thread-safe: for one loop.

    Raises OSError as `socket.recv` does, BlockingIOError when nothing has come.
    """
    size = _done(_LIBC.recv(sock.fileno(), _BUFFER, len(_BUFFER), socket.MSG_DONTWAIT))
    return ctypes.string_at(_BUFFER, size)


def send(sock: socket.socket, data: bytes) -> int:
    """How many bytes were taken. Raises OSError as `socket.send` does, BlockingIOError when none can be."""
    return _done(_LIBC.send(sock.fileno(), data, len(data), socket.MSG_DONTWAIT))


def _done(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
