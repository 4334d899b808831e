"""A gold set as it was approved: the fingerprint of every item, signed; a set that differs is refused whole."""

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
"""What a frozen gold set calls itself."""
VERSION: Final = 1
HMAC: Final = "hmac-sha256"
DIGEST: Final = "sha256"
NAMED: Final = 5
"""Items of one kind of difference that a message names."""
_NOT_FROZEN: Final = "write it with `ragmon gold freeze GOLD --output FILE`"


class FrozenGoldSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A gold set as it was frozen.

    Attributes:
        name: What it was called, for people.
        version: Its version.
        items: How many it had.
        fingerprints: Of every item, by qid.
        signed: How the file is signed: `hmac-sha256`, or `sha256` where there was no key.
    """

    name: str
    version: str
    items: int
    fingerprints: dict[str, str]
    signed: str


def freeze(gold: GoldSet, key: bytes | None = None) -> dict[str, Any]:
    """A gold set as a file of plain JSON data that holds none of its text.

    Args:
        gold: The set as its files say it, without tags of a configuration.
        key: The secret it is signed with (HMAC-SHA256, RFC 2104); None: a plain digest, which tells accidents alone.

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
    """A frozen gold set, if nobody changed it.

    Args:
        path: The file.
        key: The secret it is to be signed with.

    Raises:
        GoldError: It cannot be read, is none, was changed, or is not signed with this key.
    """
    try:
        data = json.loads(Path(path).read_bytes())
    except OSError as error:
        said = f"the frozen gold set cannot be read ({error.strerror})"
        raise GoldError(said, path=str(path), hint=_NOT_FROZEN) from error
    except (ValueError, RecursionError) as error:
        raise GoldError("the frozen gold set is no JSON", path=str(path), hint=_NOT_FROZEN) from error
    if not isinstance(data, dict) or data.get("kind") != KIND or data.get("v") != VERSION:
        raise GoldError("this is no frozen gold set", path=str(path), hint=_NOT_FROZEN)
    _verify(data, path, key)
    try:
        return msgspec.convert({k: v for k, v in data.items() if k not in ("kind", "v", "signature")}, FrozenGoldSet)
    except msgspec.ValidationError as error:
        raise GoldError(f"the frozen gold set holds what none can ({error})", path=str(path)) from error


def check(gold: GoldSet, frozen: FrozenGoldSet, *, at: str, file: str, with_key: bool = False) -> None:
    """Refuse a gold set that is not the one that was frozen.

    Args:
        gold: The set as its files say it.
        frozen: What it was.
        at: Its files, for messages.
        file: The frozen file, for messages.
        with_key: The hint names a key as well.

    Raises:
        GoldError: It differs; the message names the first items that do.
    """
    if (gold.version, len(gold)) == (frozen.version, frozen.items):
        return
    now = {item.qid: item.fingerprint for item in gold}
    again = f"`ragmon gold freeze {at} --output {file}{' --key-file KEY' if with_key else ''}`"
    hint = f"put the frozen version back, or read `ragmon gold diff {file} {at}` and freeze anew: {again}"
    raise GoldError(f"differs from {file}: {_differences(frozen.fingerprints, now)}", path=at, hint=hint)


def _differences(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    kinds = {
        "added": [qid for qid in now if qid not in before],
        "removed": [qid for qid in before if qid not in now],
        "changed": [qid for qid, found in now.items() if before.get(qid, found) != found],
    }
    return "; ".join(f"{kind} {_some(qids)}" for kind, qids in kinds.items() if qids)


def _some(qids: Sequence[str]) -> str:
    more = f" and {len(qids) - NAMED} more" if len(qids) > NAMED else ""
    return ", ".join(shorten(qid) for qid in qids[:NAMED]) + more


def _verify(data: Mapping[str, Any], path: str | Path, key: bytes | None) -> None:
    """Refuse a file whose signature is not that of what it holds.

    Raises:
        GoldError: It was changed, or is signed otherwise than is asked for.
    """
    signed = data.get("signed")
    if key is None and signed == HMAC:
        raise GoldError("the frozen gold set is signed, and there is no key", path=str(path), hint="name its key_file")
    if key is not None and signed != HMAC:
        hint = "freeze it with the key: `ragmon gold freeze GOLD --output FILE --key-file KEY`"
        raise GoldError("the frozen gold set is not signed, and there is a key", path=str(path), hint=hint)
    body = {name: value for name, value in data.items() if name != "signature"}
    if not hmac.compare_digest(str(data.get("signature")).encode(), _signature(body, key).encode()):
        said = "was changed after it was frozen" if key is None else "was changed, or signed with another key"
        raise GoldError(f"the frozen gold set {said}", path=str(path), hint=_NOT_FROZEN)


def _signature(body: Mapping[str, Any], key: bytes | None) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(canonical).hexdigest() if key is None else hmac.digest(key, canonical, "sha256").hex()
