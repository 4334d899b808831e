"""Journals that older ragmons wrote open as they are: stored ones, one for each layout there ever was.

`tests/data/journals` holds what a real server of that commit left behind when it was killed, the records that were sent
to it, and what it said of them itself; `write.py` there made them.
"""

from __future__ import annotations

import json
import lzma

import msgspec
import pytest

from ragmon.core.errors import RagmonError
from ragmon.core.record import Record, decode_entry, encode_entry
from ragmon.server.journal import Journal, open_readonly
from ragmon.server.journal.files import files_set_aside
from ragmon.server.pipeline.recovery import entries
from ragmon.server.pipeline.state import ServerState
from tests.support.manual_writer import ManualWriter, body, fingerprint
from tests.support.serving import foreign, whole

WRITTEN_BY = ("31fab96", "fa9e83b", "7694258", "10754fa", "1ef49f9", "b64a092", "7884c22")
"""The first commit of each layout: three of version 1, one of 2, one of 3; the last of version 3, and one of 4."""
AFTER = 1_795_428_900.5
"""Soon after all of them were written."""


class Later(ManualWriter):
    """A keeper of today that begins soon after the journals were written."""

    def open(self):
        self.time.now = max(self.time.now, AFTER)
        super().open()


@pytest.fixture(params=WRITTEN_BY)
def commit(request):
    return request.param


@pytest.fixture
def stored(data, commit):
    """What is stored of a commit, by the ending of its name."""
    return lambda ending: (data / "journals" / f"{commit}.{ending}").read_bytes()


@pytest.fixture
def folder(tmp_path, stored):
    """A folder with its journal, where a server looks for it."""
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / "journal.db").write_bytes(lzma.decompress(stored("db.xz")))
    return tmp_path


@pytest.fixture
def sent(stored):
    """The records that were sent to it, by trace."""
    records = [decode_entry(line) for line in stored("jsonl").splitlines()]
    return {record.trace_id: record for record in records}


@pytest.fixture
def manual(folder):
    with Later(folder) as found:
        yield found


def held(manual):
    """The rows of its journal, each with its entries."""
    return [(row, entries(row.lines)) for row in manual.writer.journal.rows()]


@pytest.mark.slow
def test_it_counts_what_the_ragmon_that_wrote_it_counted(manual, stored):
    said = json.loads(stored("json"))
    assert said.pop("residual") == manual.books.residual == 0
    assert {name: value for name, value in msgspec.to_builtins(manual.books).items() if name in said} == said
    assert (said["received"], said["scored"], said["duplicate"], said["pending"]) == (51, 44, 5, 2)
    assert files_set_aside(manual.writer.journal.path) == []


@pytest.mark.slow
def test_it_holds_every_record_as_it_was_sent(manual, sent):
    there = [entry for _, found in held(manual) for entry in found if isinstance(entry, Record)]
    mine = {record.trace_id: encode_entry(record) for record in there if record.trace_id in sent}
    assert mine == {trace_id: encode_entry(record) for trace_id, record in sent.items()}
    others = {record.trace_id for record in there if record.trace_id not in sent}
    assert others == {foreign(n)[0].trace_id for n in range(4)}


@pytest.mark.slow
def test_its_scores_are_those_of_the_records_that_were_sent(manual, sent):
    server_state = ServerState(manual.settings)
    for row, found in held(manual):
        told = [sent.get(entry.trace_id, entry) if isinstance(entry, Record) else entry for entry in found]
        server_state.apply(row.seq, row.arrival, ServerState(manual.settings).counts, told)
    digest = server_state.engine.scorer.state.digest()
    assert manual.server_state.engine.scorer.state.digest() == manual.replayed().engine.scorer.state.digest() == digest


@pytest.mark.slow
def test_what_waited_goes_on_waiting_and_is_accounted_for(manual):
    manual.send(body(foreign(5, at=AFTER)[0]))
    for _ in range(2):
        manual.tick(40.0)
    assert (manual.books.received, manual.books.scored, manual.books.pending, manual.books.residual) == (51, 46, 0, 0)
    assert manual.agrees()
    assert manual.verified().holds
    assert list(manual.writer.journal.pending_requests()) == []


@pytest.mark.slow
def test_what_came_to_the_older_ragmon_is_a_duplicate_now(manual, sent):
    manual.send(whole(sent.values()), body(*foreign(0)))
    manual.tick(40.0)
    assert (manual.books.duplicate, manual.books.scored, manual.books.residual) == (5 + len(sent), 46, 0)
    assert sum(manual.server_state.counts.spans.values()) == len(foreign(0))


@pytest.mark.slow
def test_a_second_start_finds_nothing_to_do(manual):
    before = fingerprint(manual.server_state)
    manual.again()
    assert fingerprint(manual.server_state) == before
    assert manual.books.residual == 0


@pytest.mark.parametrize("commit", WRITTEN_BY[:-2], indirect=True)
def test_whoever_only_reads_is_told_to_start_a_server_and_changes_nothing(folder):
    before = (folder / "state" / "journal.db").read_bytes()
    with pytest.raises(RagmonError, match="written by an older ragmon"):
        open_readonly(folder / "state")
    assert (folder / "state" / "journal.db").read_bytes() == before


def test_numbers_of_requests_that_waited_are_not_given_again(folder, commit):
    """Another process may still delete what it saw under such a number."""
    with_rows = Journal(folder / "state", clock=lambda: AFTER)
    highest = max(found.seq for found in with_rows.pending_requests())
    with with_rows.begin() as batch:
        batch.delete_pending(found.seq for found in list(with_rows.pending_requests()))
    with with_rows.begin() as batch:
        assert batch.add_pending(AFTER, "json", b"{}") > highest
    with_rows.close()
