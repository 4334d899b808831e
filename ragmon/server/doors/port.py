"""A port: bound before anything else is begun, and served by a thread of its own until it is stopped."""

from __future__ import annotations

import errno
import socket
import ssl
from abc import ABC, abstractmethod
from pathlib import Path
from threading import Event, Thread
from typing import Final, Self

from ragmon.config.types import Address
from ragmon.core.errors import RagmonError, UnavailableError
from ragmon.monitor.log import complain

_BACKLOG: Final = 512


class Port(ABC):
    """Where clients connect, whatever is spoken there.

    Args:
        name: The key of `[serve]` that says where.
        address: Where; port 0 takes a free one.
        tls: The certificate and its key, PEM files; None for plain text.
    """

    def __init__(self, name: str, address: Address, tls: tuple[Path, Path] | None) -> None:
        self._name = name
        self._asked = address
        self._tls = tls
        self._begun = Event()
        self._address: Address | None = None
        self._thread: Thread | None = None

    @property
    def address(self) -> Address:
        """Where it listens, or is to listen while it does not."""
        return self._address or self._asked

    def start(self) -> Self:
        """Listen; returns once clients can connect. Does nothing where it listens already.

        Raises:
            UnavailableError: The port is taken, or the address is none of this machine's.
            RagmonError: The certificate is of no use.
        """
        if self._thread is not None:
            return self
        if self._tls is not None:
            check_certificate(*self._tls)
        place = bind(self._asked, self._name)
        self._begun.clear()
        self._thread = Thread(target=self._run, args=(place,), name=f"ragmon-{self._name}", daemon=True)
        self._thread.start()
        self._begun.wait()
        if self._address is None:
            self.stop(0.0)
            raise RagmonError(f"the {self._name} port on {self._asked} does not start", hint="the log says why")
        return self

    def stop(self, grace: float) -> None:
        """Take no more clients, and end what those there are ask for.

        Args:
            grace: Seconds that requests in flight have to be answered.
        """
        if self._thread is None:
            return
        self._end(grace)
        self._thread.join()
        self._thread = self._address = None

    def _run(self, place: socket.socket) -> None:
        try:
            self._serve(place)
        except Exception as error:  # noqa: BLE001 - the thread's end is what its owner sees
            complain(f"the {self._name} port ended", error)
        finally:
            place.close()
            self._begun.set()

    def _opened(self, port: int) -> None:
        """Clients can connect."""
        self._address = Address(self._asked.host, port)
        self._begun.set()

    @abstractmethod
    def _serve(self, place: socket.socket) -> None:
        """Serve clients until the port is stopped; says `_opened` once they can connect."""

    @abstractmethod
    def _end(self, grace: float) -> None:
        """Have `_serve` return, within some seconds."""


def bind(address: Address, name: str) -> socket.socket:
    """A socket bound to an address; `::` takes IPv4 as well.

    Args:
        address: The address.
        name: The key of `[serve]` it comes from.

    Raises:
        UnavailableError: It is taken, or none of this machine's.
    """
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, place = found[0]
        both = address.host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server(place[:2], family=family, backlog=_BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        hint = "another process has the port" if taken else "an address of this machine that you may use"
        raise UnavailableError(
            f"the {name} port cannot be opened on {address} ({error.strerror or error})",
            hint=f"{hint}: change `[serve] {name}`",
        ) from error


def check_certificate(cert: Path, key: Path) -> None:
    """See that a certificate and its key can be used, before anybody connects.

    Raises:
        RagmonError: They cannot.
    """
    try:
        # A passphrase would be asked for on the terminal; an empty one is wrong for every key that has one.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
    except (OSError, ValueError) as error:
        missing = next((path for path in (cert, key) if not path.is_file()), None)
        why = f"{missing} is missing" if missing else str(getattr(error, "reason", None) or error)
        raise RagmonError(
            f"the certificate {cert} cannot be used with the key {key} ({why})",
            hint="PEM files that belong together, the key without a passphrase: `[serve] tls`",
        ) from error
