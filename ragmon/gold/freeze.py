"""Frozen gold sets: the signed fingerprints of all items as they were approved; a set that differs is rejected."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from ragmon.core.errors import GoldError, shorten
from ragmon.gold.sets import GoldSet

KIND: Final = "ragmon-gold"
"""The `kind` of a frozen gold set."""
VERSION: Final = 1
HMAC: Final = "hmac-sha256"
DIGEST: Final = "sha256"
NAMED: Final = 5
"""Items that a message names for each kind of difference."""
_FREEZE_HINT: Final = "write it with `ragmon gold freeze GOLD --output FILE`"


class FrozenGoldSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A gold set as it was frozen.

    Attributes:
        name: Its name, for people.
        version: Its version.
        items: Its number of items.
        fingerprints: The fingerprints of all items, by qid.
        signed: How the file is signed: `hmac-sha256`, or `sha256` where there was no key.
    """

    name: str
    version: str
    items: int
    fingerprints: dict[str, str]
    signed: str


def freeze(gold: GoldSet, key: bytes | None = None) -> dict[str, Any]:
    """A gold set as plain JSON data that holds none of its text.

    Args:
        gold: The set as its files define it, without tags from a configuration.
        key: The secret it is signed with (HMAC-SHA256, RFC 2104); None: a plain digest, which detects only accidental
            changes.

    >>> from ragmon.core.gold_item import GoldItem
    >>> freeze(GoldSet("g", (GoldItem("a", "Why?", answerable=False),)))["items"]
    1
    """
    body = {
        "kind": KIND,
        "v": VERSION,
        "name": gold.name,
        "version": gold.version,
        "items": len(gold),
        "fingerprints": {item.qid: item.fingerprint for item in sorted(gold, key=lambda item: item.qid)},
        "signed": DIGEST if key is None else HMAC,
    }
    return {**body, "signature": _signature(body, key)}


def is_frozen(path: str | Path) -> bool:
    """Whether a file is a frozen gold set rather than a gold file."""
    try:
        data = json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and data.get("kind") == KIND


def read_frozen(path: str | Path, key: bytes | None = None) -> FrozenGoldSet:
    """Read a frozen gold set and check its signature.

    Args:
        path: The file.
        key: The secret it must be signed with; None where it must not be signed with one.

    Raises:
        GoldError: It cannot be read, is no frozen set, was changed, or is not signed with this key.
    """
    try:
        data = json.loads(Path(path).read_bytes())
    except OSError as error:
        message = f"the frozen gold set cannot be read ({error.strerror})"
        raise GoldError(message, path=str(path), hint=_FREEZE_HINT) from error
    except (ValueError, RecursionError) as error:
        raise GoldError("the frozen gold set is no JSON", path=str(path), hint=_FREEZE_HINT) from error
    if not isinstance(data, dict) or data.get("kind") != KIND or data.get("v") != VERSION:
        raise GoldError("this is no frozen gold set", path=str(path), hint=_FREEZE_HINT)
    _verify(data, path, key)
    try:
        return msgspec.convert({k: v for k, v in data.items() if k not in ("kind", "v", "signature")}, FrozenGoldSet)
    except msgspec.ValidationError as error:
        raise GoldError(f"the frozen gold set holds what none can ({error})", path=str(path)) from error


def check(gold: GoldSet, frozen: FrozenGoldSet, *, at: str, file: str, with_key: bool = False) -> None:
    """Reject a gold set that differs from the frozen one.

    Args:
        gold: The set as its files define it.
        frozen: The frozen set.
        at: Its files, for messages.
        file: The frozen file, for messages.
        with_key: Whether the hint names a key, too.

    Raises:
        GoldError: The set differs; the message names the first items that do.
    """
    if (gold.version, len(gold)) == (frozen.version, frozen.items):
        return
    fingerprints = {item.qid: item.fingerprint for item in gold}
    command = f"`ragmon gold freeze {at} --output {file}{' --key-file KEY' if with_key else ''}`"
    hint = f"put the frozen version back, or read `ragmon gold diff {file} {at}` and freeze anew: {command}"
    raise GoldError(f"differs from {file}: {_differences(frozen.fingerprints, fingerprints)}", path=at, hint=hint)


def _differences(frozen: Mapping[str, str], current: Mapping[str, str]) -> str:
    kinds = {
        "added": [qid for qid in current if qid not in frozen],
        "removed": [qid for qid in frozen if qid not in current],
        "changed": [qid for qid, fingerprint in current.items() if frozen.get(qid, fingerprint) != fingerprint],
    }
    return "; ".join(f"{kind} {_first_names(qids)}" for kind, qids in kinds.items() if qids)


def _first_names(qids: Sequence[str]) -> str:
    more = f" and {len(qids) - NAMED} more" if len(qids) > NAMED else ""
    return ", ".join(shorten(qid) for qid in qids[:NAMED]) + more


def _verify(data: Mapping[str, Any], path: str | Path, key: bytes | None) -> None:
    """Reject a file whose signature does not match its content.

    Raises:
        GoldError: It was changed, or is not signed as required.
    """
    signed = data.get("signed")
    if key is None and signed == HMAC:
        raise GoldError("the frozen gold set is signed, and there is no key", path=str(path), hint="name its key_file")
    if key is not None and signed != HMAC:
        hint = "freeze it with the key: `ragmon gold freeze GOLD --output FILE --key-file KEY`"
        raise GoldError("the frozen gold set is not signed, and there is a key", path=str(path), hint=hint)
    body = {name: value for name, value in data.items() if name != "signature"}
    if not hmac.compare_digest(str(data.get("signature")).encode(), _signature(body, key).encode()):
        problem = "was changed after it was frozen" if key is None else "was changed, or signed with another key"
        raise GoldError(f"the frozen gold set {problem}", path=str(path), hint=_FREEZE_HINT)


def _signature(body: Mapping[str, Any], key: bytes | None) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(canonical).hexdigest() if key is None else hmac.digest(key, canonical, "sha256").hex()
