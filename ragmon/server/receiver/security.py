"""The check of the listen addresses in the configuration, before a port is opened.

A client of a write port can fill the journal and change the results of gates. Therefore:

* a write port (`otlp`, `grpc`) on an address that other machines can reach needs a token, and TLS: a certificate, or
  `tls = "upstream"` if a proxy terminates TLS;
* with `tls = "upstream"`, write ports need a token on every address: through the proxy, other machines reach even
  loopback addresses;
* the admin port only reads, and shows content to whoever has the token: on an address that other machines can reach it
  causes a warning.

`--insecure` turns these errors into warnings.
"""

from __future__ import annotations

from typing import Final

from ragmon.config.services import ServeTable
from ragmon.config.types import Address
from ragmon.core.errors import ConfigError

WRITE_PORTS: Final = ("otlp", "grpc")
_SETTINGS: Final = {
    "a token": '`token_file = "/run/secrets/ragmon"`',
    "TLS": '`tls = { cert = "server.pem", key = "server.key" }`, or `tls = "upstream"` where a proxy ends TLS',
}
"""The settings to add for what is missing."""


def check_listen_addresses(serve: ServeTable, *, insecure: bool) -> list[str]:
    """Check that no write port can be used by other machines without a token and TLS.

    Args:
        serve: The configuration.
        insecure: Warn instead of raising an error.

    Returns:
        The warnings.

    Raises:
        ConfigError: A write port has no token or no TLS where it needs them.

    >>> check_listen_addresses(ServeTable(), insecure=False)
    []
    """
    missing = {name: _missing(serve, name) for name in WRITE_PORTS}
    warnings = [_warning(serve, name, items) for name, items in missing.items() if items]
    if warnings and not insecure:
        needed = dict.fromkeys(_SETTINGS[item] for items in missing.values() for item in items)
        hint = f"write {' and '.join(needed)}; --insecure does without, in a closed network"
        raise ConfigError("; ".join(warnings), hint=hint)
    if not serve.admin.is_loopback:
        warnings.append(f"`[serve] admin` listens on {serve.admin}: whoever reaches it reads metrics and trace ids")
    return warnings


def is_private(serve: ServeTable, name: str) -> bool:
    """Whether this machine alone can reach a port, as far as the configuration says: no proxy passes requests on.

    Args:
        serve: The configuration.
        name: The port: `otlp`, `grpc` or `admin`.
    """
    return bool(getattr(serve, name).is_loopback) and serve.tls != "upstream"


def _missing(serve: ServeTable, name: str) -> list[str]:
    """What a write port needs and does not have."""
    if is_private(serve, name):
        return []
    settings = {"a token": serve.token_file is not None, "TLS": serve.tls != "off"}
    return [item for item, is_set in settings.items() if not is_set]


def _warning(serve: ServeTable, name: str, missing: list[str]) -> str:
    address: Address = getattr(serve, name)
    reach = 'behind a proxy (`tls = "upstream"`)' if address.is_loopback else "where other machines reach it,"
    return f"`[serve] {name}` listens on {address} {reach} without {' and '.join(missing)}"
