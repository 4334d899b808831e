"""A chunk in pieces is put together again, whatever comes between them, however often they come."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from ragmon.stream.chunk import APART, BESIDE, PieceJoiner, piece_size, pieces


def messages(key, body, size):
    """The messages of a chunk."""
    return [(key, headers, piece) for headers, piece in pieces(body, size)]


@given(st.binary(max_size=300), st.integers(1, 400))
def test_the_pieces_of_a_chunk_are_the_chunk_and_none_is_larger_than_it_may_be(body, size):
    sent = messages(b"a", body, size)
    assert all(len(piece) <= size for _, _, piece in sent)
    joiner = PieceJoiner()
    joined = [joiner.take(*message, offset) for offset, message in enumerate(sent)]
    assert [whole for whole in joined if whole is not None] == [body]
    assert joined[-1] == body
    assert joiner.resume(len(sent)) == len(sent)


@given(st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=5, unique=True), st.integers(0, 9))
def test_chunks_of_several_parts_may_lie_between_each_other_and_pieces_may_come_twice(bodies, seed):
    """As of two owners that write at the same time, or of a producer that tried again."""
    chance, sent = random.Random(seed), []
    for number, body in enumerate(bodies):
        own = messages(b"%d" % number, body, 7)
        sent.append([message for message in own for _ in range(chance.randrange(1, 3))])
    joiner, found, offset = PieceJoiner(), {}, 0
    while any(sent):
        queue = chance.choice([queue for queue in sent if queue])
        key, headers, piece = queue.pop(0)
        whole = joiner.take(key, headers, piece, offset)
        offset += 1
        if whole is not None:
            found.setdefault(key, set()).add(whole)
    assert found == {b"%d" % number: {body} for number, body in enumerate(bodies)}


def test_who_is_killed_between_two_pieces_reads_from_the_first_one_that_waits():
    joiner = PieceJoiner()
    first, second = messages(b"a", b"x" * 10, 6)
    assert joiner.take(*first, 40) is None
    assert joiner.take(b"b", None, b"another chunk", 41) == b"another chunk"
    assert joiner.resume(42) == 40
    assert joiner.take(*second, 42) == b"x" * 10
    assert joiner.resume(43) == 43


def test_pieces_of_whoever_was_killed_are_not_waited_for_without_end():
    joiner = PieceJoiner()
    joiner.take(*messages(b"a", b"x" * 10, 6)[0], 40)
    joiner.take(b"b", None, b"a chunk", 41 + APART)
    assert joiner.resume(42 + APART) == 42 + APART


def test_a_header_that_is_damaged_makes_a_chunk_that_is_refused_later():
    joiner = PieceJoiner()
    for value in (b"", b"1/1/x", b"7/2/x", b"-1/2/x", b"0/99999999/x", b"\xff", None):
        assert joiner.take(b"a", [("ragmon-piece", value)], b"body", 0) == b"body"


def test_a_message_is_as_large_as_the_clients_settings_say():
    assert piece_size({}) == 1_000_000 - BESIDE
    assert piece_size({"message.max.bytes": 5_000}) == piece_size({"message.max.bytes": "5000"}) == 5_000 - BESIDE
