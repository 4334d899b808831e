"""Whether the server may listen where it is told to: a look at the configuration before a port is opened.

The rule: whoever can reach a write port can fill the journal and move the gates, so

* a write port (`otlp`, `grpc`) on an address other machines reach needs a token, and TLS: a certificate, or
  `tls = "upstream"` where a proxy ends it;
* with `tls = "upstream"` they need a token wherever they listen: the proxy lets others reach even this machine's own
  addresses;
* the admin port only reads and never shows content: on an address other machines reach it is worth a warning.

`--insecure` turns what would be refused into warnings.
"""

from __future__ import annotations

import re
from typing import Final

from ragmon.config.services import ServeTable
from ragmon.config.types import Address
from ragmon.core.errors import ConfigError, RagmonError

WRITE_PORTS: Final = ("otlp", "grpc")
_PRINTABLE: Final = re.compile(r"[!-~]+")
_WRITE: Final = {
    "a token": '`token_file = "/run/secrets/ragmon"`',
    "TLS": '`tls = { cert = "server.pem", key = "server.key" }`, or `tls = "upstream"` where a proxy ends TLS',
}
"""What to write for what is missing."""


def check_listen_addresses(serve: ServeTable, *, insecure: bool) -> list[str]:
    """Refuse a write port that strangers could use.

    Args:
        serve: The configuration.
        insecure: Warn of it only.

    Returns:
        What is worth a warning.

    Raises:
        ConfigError: A write port has no token or no TLS where it needs them.

    >>> check_listen_addresses(ServeTable(), insecure=False)
    []
    """
    missing = {name: _missing(serve, name) for name in WRITE_PORTS}
    warnings = [_told(serve, name, what) for name, what in missing.items() if what]
    if warnings and not insecure:
        needed = dict.fromkeys(_WRITE[what] for found in missing.values() for what in found)
        hint = f"write {' and '.join(needed)}; --insecure does without, in a closed network"
        raise ConfigError("; ".join(warnings), hint=hint)
    if not serve.admin.is_loopback:
        warnings.append(f"`[serve] admin` listens on {serve.admin}: whoever reaches it reads metrics and trace ids")
    return warnings


def read_token(serve: ServeTable) -> str | None:
    """The bearer token of the write ports; None where the configuration names no file.

    Raises:
        RagmonError: The file cannot be read, or holds no token.
    """
    path = serve.token_file
    if path is None:
        return None
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RagmonError(f"{path}: the token cannot be read ({error})", hint="check `[serve] token_file`") from error
    if not _PRINTABLE.fullmatch(token):
        what = "is empty" if not token else "cannot be sent in a header"
        hint = "one line of printable ASCII without spaces, such as `openssl rand -hex 32` writes"
        raise RagmonError(f"{path}: the token {what}", hint=hint)
    return token


def _missing(serve: ServeTable, name: str) -> list[str]:
    """What a write port needs and has not."""
    if getattr(serve, name).is_loopback and serve.tls != "upstream":
        return []
    has = {"a token": serve.token_file is not None, "TLS": serve.tls != "off"}
    return [what for what, there in has.items() if not there]


def _told(serve: ServeTable, name: str, missing: list[str]) -> str:
    place: Address = getattr(serve, name)
    why = 'behind a proxy (`tls = "upstream"`)' if place.is_loopback else "where other machines reach it,"
    return f"`[serve] {name}` listens on {place} {why} without {' and '.join(missing)}"
