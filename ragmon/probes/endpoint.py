"""An HTTP endpoint of the application as the target of probes."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPException, IncompleteRead
from typing import Any, Final
from urllib.parse import urlsplit

from ragmon.capture.call import Site
from ragmon.capture.exporters.http import Connection, Reply, retry_after
from ragmon.core.errors import RagmonError, shorten
from ragmon.core.version import current
from ragmon.probes.cache_headers import is_from_cache
from ragmon.probes.marks import headers
from ragmon.probes.question import Sending

LARGEST: Final = 4 << 20
"""Bytes of a reply; one that is longer is none."""
_LATER: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""What an application says that has too much to do."""
_WAITING: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
"""Of these, what may come with a time to wait."""
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE: Final = re.compile(r"[\t -~]*")
"""What may stand in a header (RFC 9110, section 5)."""
_BROKE_OFF: Final = (ConnectionResetError, BrokenPipeError, IncompleteRead)
"""How it shows that somebody was there."""


class ReplyError(Exception):
    """A reply that is no answer.

    Args:
        message: What is wrong with it.
        wait: Seconds the application wants to be left alone; None where it did not say.
        overloaded: It has too much to do.
    """

    def __init__(self, message: str, *, wait: float | None = None, overloaded: bool = False) -> None:
        super().__init__(message)
        self.wait = wait
        self.overloaded = overloaded


class UnreadableReplyError(ReplyError):
    """A reply that is neither JSON nor plain text."""


class UnreachableError(ConnectionError):
    """Nobody is there, or nobody that can be talked to."""


class Endpoint:
    """Posts the question, and reads the answer from the reply.

    Certificates are verified, redirects are not followed, and no proxy the environment names plays a part.

    Args:
        url: The address.
        body: What is posted; `{question}` is replaced by the question, as it stands inside a JSON string.
        headers: Sent with each request.
        key: What proves to the application that this is a probe; None proves nothing.

    Raises:
        RagmonError: The address cannot be asked, or a header not be sent.
    """

    site: Site | None = None

    def __init__(self, url: str, *, body: str, headers: Mapping[str, str], key: bytes | None) -> None:
        parts = urlsplit(url)
        if "@" in parts.netloc:  # what stands before it may be a password, so the address is not shown
            raise RagmonError("the target names a user", hint='headers = { Authorization = "..." }')
        if not parts.hostname or not (parts.path + parts.query).isascii():
            raise RagmonError(f"the target is no address: {shorten(url)}", hint="https://rag.example/answer")
        tls = parts.scheme == "https"
        self.name = f"{parts.scheme}://{parts.netloc}"
        self._host, self._port = parts.hostname, parts.port or (443 if tls else 80)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._tls = ssl.create_default_context() if tls else None
        self._body = body
        self._headers = _lowered({"Content-Type": "application/json", "Accept": "application/json", **headers})
        for name, value in self._headers.items():
            if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
                hint = "a name, and one line of printable ASCII"
                raise RagmonError(f"the header {shorten(name)} of the target cannot be sent", hint=hint)
        self._key = key

    def __call__(self, text: str, sending: Sending) -> Any:
        """Ask.

        Raises:
            UnreachableError: Nobody is there.
            TimeoutError: There was no whole reply in time.
            ReplyError: It is no answer.
        """
        body = self._body.replace("{question}", json.dumps(text)[1:-1])
        reply = self._post(body.encode(), self._told(sending), sending)
        sending.from_cache = is_from_cache(reply.headers)
        if not HTTPStatus.OK <= reply.status < HTTPStatus.MULTIPLE_CHOICES:
            raise _refusal(reply)
        return read(reply)

    def _told(self, sending: Sending) -> dict[str, str]:
        """The headers of a request: ours where both say something, but for baggage, which is a list."""
        own = _lowered(headers(sending.qid, sending.probe, sending.trace_id, self._key))
        if "baggage" in self._headers:
            own["baggage"] = f"{self._headers['baggage']},{own['baggage']}"
        usual = {"user-agent": f"ragmon/{current()}", "accept-encoding": "identity"}
        return {**usual, **self._headers, **own}

    def _post(self, body: bytes, told: Mapping[str, str], sending: Sending) -> Reply:
        connection = Connection(self._host, self._port, self._tls, LARGEST + 1)
        try:
            return connection.post(self._path, body, told, sending.deadline)
        except TimeoutError:
            raise
        except ssl.SSLCertVerificationError as error:
            raise UnreachableError(f"its certificate is not trusted ({error.verify_message})") from error
        except (OSError, HTTPException, UnicodeError) as error:
            why = (isinstance(error, OSError) and error.strerror) or type(error).__name__
            failed = ConnectionError if isinstance(error, _BROKE_OFF) else UnreachableError
            raise failed(str(why)) from error
        finally:
            connection.close()


def _lowered(told: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in told.items()}


def read(reply: Reply) -> Any:
    """What a reply says: JSON, or plain text.

    Raises:
        UnreadableReplyError: It is neither, or too long. A page for people is no answer.
    """
    if len(reply.body) > LARGEST:
        raise UnreadableReplyError(f"it is longer than {LARGEST} bytes")
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError):
        if reply.headers.get_content_type() == "text/plain" and "Content-Type" in reply.headers:
            return reply.body.decode(reply.headers.get_content_charset() or "utf-8", "replace")
    raise UnreadableReplyError(f"it is no JSON: {reply.headers.get_content_type()}")


def _refusal(reply: Reply) -> ReplyError:
    """What a status other than success stands for; records name errors by their type."""
    status = reply.status
    wait = retry_after(reply.headers.get("Retry-After")) if status in _WAITING else None
    wait = 0.0 if wait is None and status == HTTPStatus.TOO_MANY_REQUESTS else wait
    kind: type[ReplyError] = type(f"Http{status}Error", (ReplyError,), {})
    return kind(f"it answered with status {status}", wait=wait, overloaded=status in _LATER)
