"""A journal writer without its thread: a test says when a row is written, when the server dies, what time it is."""

from __future__ import annotations

from copy import deepcopy

from ragmon.cli.verify import of_journal
from ragmon.config.load import load
from ragmon.ingest.receiver import Encoding
from ragmon.server.erasure import erase
from ragmon.server.pending import decode_traces
from ragmon.server.server import make_writer
from ragmon.server.state import ServerState, replay
from ragmon.server.store import FailureQuery, JournalReader
from tests.support.otlp_requests import export
from tests.support.serving import QUICK, Time, configuration, foreign

HOUR = 3600.0
NO_ERRORS = '[gates.errors]\nmetric = "error_rate"\nat_most = 0.0\n'
"""A gate that fails every request that ended in an error."""
SHORT = 'windows = ["5m", "10m"]\n'
"""What came more than an hour and ten minutes ago is in no window."""


class ManualWriter:
    """A journal writer whose rows are written by hand.

    Args:
        folder: Where its configuration and its state lie.
        text: The configuration beside `[serve]`.
        assembly_limits: How long it waits for spans.
    """

    def __init__(self, folder, text="", assembly_limits=QUICK):
        self.folder = folder
        self.time = Time()
        self._assembly_limits = assembly_limits
        self._configure(text)
        self.open()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def _configure(self, text):
        self.settings = load(configuration(self.folder, text), environ={})

    def open(self):
        """Begin to serve, with what is in the journal."""
        self.writer = make_writer(self.settings, self.time.clock(), self._assembly_limits)

    def kill(self):
        """End as a crash does: nothing more is written."""
        self.writer.journal.close()

    def again(self, seconds=0.0):
        """Be killed, and begin again after some time."""
        self.kill()
        self.time.now += seconds
        self.open()

    def reload(self, text=None):
        """Go on with another configuration, or with the same one read again."""
        if text is not None:
            self._configure(text)
        self.writer.replace_state(ServerState(self.settings))

    def send(self, *bodies):
        """Write one row of exports of traces."""
        self.take(*(decode_traces(body, Encoding.PROTOBUF) for body in bodies))

    def take(self, *requests):
        """Write one row of requests."""
        self._turn(list(requests))

    def tick(self, seconds=0.0):
        """Let time pass, and see what is due."""
        self.time.now += seconds
        self._turn([])

    def _turn(self, requests):
        self.writer._turn(requests)
        if self.writer.uncounted:
            self.writer._recount()

    def save(self):
        """Write a checkpoint."""
        self.writer._save()

    def expire(self):
        """Delete all that has had its time."""
        while self.writer.journal.expire():
            pass

    def damage(self):
        """Find the journal damaged: it is set aside, and another one begun."""
        self.writer._fail([], "corrupt")

    def forget(self, trace):
        """Have a trace forgotten, as the command does in a process of its own."""
        return erase(self.folder / "state", trace=trace)

    @property
    def server_state(self):
        """Where it stands."""
        return self.writer.server_state

    @property
    def books(self):
        """The books of what came in."""
        return self.server_state.counters(self.writer.open_traces.pending)

    def replayed(self):
        """Where a replay of all rows comes to."""
        with JournalReader(self.folder / "state") as journal:
            return replay(self.settings, journal)

    def agrees(self):
        """Whether a replay counts what was counted here."""
        mine, other = self.server_state, self.replayed()
        return fingerprint(mine) == fingerprint(other)

    def verified(self):
        """What `ragmon verify` finds in the journal."""
        return of_journal(self.settings, self.folder / "state", deep=True)

    def failures(self):
        """The requests that failed a gate, as far as they can be found on disk."""
        with JournalReader(self.folder / "state") as journal:
            return journal.failures(FailureQuery(limit=1000)).failures


def fingerprint(server_state):
    """What was counted: what came in, what producers said, and every window."""
    return server_state.counts.dump(), deepcopy(server_state.producers.last), server_state.engine.scorer.state.digest()


def body(*spans):
    """An export of spans; put one behind the other, two exports are one."""
    return export(spans).SerializeToString()


def inside(record, number, at):
    """What a framework traced inside a decorated call, at a time."""
    spans = foreign(number, parent=record.trace_id[-16:], at=at)
    return [span._replace(trace_id=record.trace_id) for span in spans]
