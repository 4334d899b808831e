"""A process that reaches nothing but its own machine, whatever a tracer tries."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

HERE: Final = frozenset({"127.0.0.1", "::1", "localhost", None})


@contextmanager
def offline(refused: Counter[str]) -> Iterator[None]:
    """Refuse every connection that would leave the machine, and count it."""

    def guarded(original: Callable[..., Any], host_of: Callable[..., object]) -> Callable[..., Any]:
        def guard(*args: Any, **kwargs: Any) -> Any:
            host = host_of(*args, **kwargs)
            if host in HERE:
                return original(*args, **kwargs)
            refused[str(host)] += 1
            raise OSError(f"{host} is not on this machine")

        return guard

    def of_name(host: object, *_: object, **__: object) -> object:
        return host

    def of_address(_: object, address: object) -> object:
        return address[0] if isinstance(address, tuple) else None

    names = guarded(socket.getaddrinfo, of_name)
    connect = guarded(socket.socket.connect, of_address)
    connect_ex = guarded(socket.socket.connect_ex, of_address)
    with (
        patch.object(socket, "getaddrinfo", names),
        patch.object(socket.socket, "connect", connect),
        patch.object(socket.socket, "connect_ex", connect_ex),
    ):
        yield
