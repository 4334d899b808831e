"""Whatever happens in whatever order: every request is accounted for, and a replay comes to what was counted."""

from __future__ import annotations

import random

import pytest

from ragmon.server.quarantine import MAX_ATTEMPTS, Attempts, WorkItem, body_key, row_key, trace_key
from ragmon.server.reader import open_readonly
from tests.support.manual_writer import NO_ERRORS, SHORT, ManualWriter, body, inside
from tests.support.serving import asked, foreign, whole

STEPS = 60
LENIENT = SHORT + NO_ERRORS
NOBODY = f"{9:016x}"
"""A span that never comes."""


class Users:
    """Requests as producers and collectors send them: whole, in parts, late, twice.

    Args:
        rng: Decides everything.
        time: What time it is.

    Attributes:
        traces: Ids of what was sent, the last one last.
    """

    def __init__(self, rng, time):
        self.traces = []
        self._rng = rng
        self._time = time
        self._number = 0
        self._parts = []
        self._sent = []

    def export(self):
        """One export, of several things."""
        kinds = [self._decorated, self._traced, self._part, self._rest, self._late, self._nested, self._again]
        found = b"".join(kind() for kind in self._rng.choices(kinds, k=self._rng.randint(1, 4)))
        self._sent.append(found)
        return found

    def _next(self):
        self._number += 1
        return self._number

    def _begun(self, spans):
        self.traces.append(spans[0].trace_id)
        self._parts.append(spans)
        return spans

    def _decorated(self):
        """A call that ended now, or much too long ago, or in the future; some fail."""
        ago = self._rng.choice([0, 1, 100, 5000, 90_000, -400])
        record = asked(self._next(), ts=self._time.now - ago, **self._rng.choice([{}, {"error": "TimeoutError"}]))
        self.traces.append(record.trace_id)
        return whole([record])

    def _traced(self):
        return body(*self._begun(foreign(self._next(), at=self._time.now)))

    def _part(self):
        """One span of a trace, which may never have a root."""
        spans = foreign(self._next(), parent=self._rng.choice([None, NOBODY]), at=self._time.now)
        return body(self._rng.choice(self._begun(spans)))

    def _rest(self):
        """A whole trace of which something came lately."""
        return body(*self._rng.choice(self._parts[-6:])) if self._parts else b""

    def _late(self):
        """A span more of any trace there ever was."""
        if not self._parts:
            return b""
        return body(self._rng.choice(self._parts)[1]._replace(span_id=f"{self._next() + 1000:016x}"))

    def _nested(self):
        """A decorated call and what was traced in it, in any order; one of both may be missing."""
        number = self._next()
        record = asked(number, ts=self._time.now)
        both = [whole([record]), body(*self._begun(inside(record, number, self._time.now)))]
        self._rng.shuffle(both)
        return b"".join(both[: self._rng.randint(1, 2)])

    def _again(self):
        """An export whose answer was lost."""
        return self._rng.choice(self._sent) if self._sent else b""


class Chaos(ManualWriter):
    """A server to which anything may happen.

    Args:
        folder: Where its state lies.
        seed: Of what happens.
        forgets: Traces are forgotten, too.

    Attributes:
        log: What happened.
        forgot: Something was forgotten: a replay cannot count it any more.
    """

    def __init__(self, folder, seed, *, forgets):
        super().__init__(folder, LENIENT)
        self.log = []
        self.forgot = False
        self._rng = random.Random(seed)
        self._users = Users(self._rng, self.time)
        weights = {self._requests: 6, self._moment: 4, self._hours: 1, self._crash: 1, self.save: 1, self.expire: 1}
        weights |= {self.reload: 1, self._rate: 1, self._down: 1, self._damaged: 0.3, self._poisoned: 1}
        if forgets:
            weights |= {self._forget: 1, self._forget_while_down: 1}
        self._what, self._weights = list(weights), list(weights.values())

    def step(self):
        """Something happens."""
        (what,) = self._rng.choices(self._what, self._weights)
        self.log.append(what.__name__)
        what()

    def _requests(self):
        self.send(*(self._users.export() for _ in range(self._rng.randint(1, 3))))

    def _moment(self):
        self.tick(self._rng.choice([0.1, 0.25, 1, 6, 61, 130]))

    def _hours(self):
        self.tick(self._rng.choice([600, 3600, 4000, 30_000, 87_500]))

    def _crash(self):
        self.again()

    def _down(self, meanwhile=lambda: None):
        """Nobody serves for some time; the clock may be set back."""
        self.kill()
        meanwhile()
        self.time.now += self._rng.choice([1, 100, 4000, 8000])
        self.time.off -= self._rng.choice([0, 0, 50])
        self.open()

    def _poisoned(self):
        """The process ends twice over the same trace, request or line: it is set aside."""
        self.kill()
        if items := list(self._journalled()):
            item = self._rng.choice(items)
            self.log.append(item)
            for _ in range(MAX_ATTEMPTS):
                attempts = Attempts(self.folder / "state")
                attempts.begin(item.key)
                attempts.at(item.line)
                attempts.close()
        self.open()

    def _journalled(self):
        """What a start works on."""
        with open_readonly(self.folder / "state") as journal:
            for waits in journal.pending_requests():
                yield WorkItem(body_key(waits.seq, waits.arrival))
                yield from (WorkItem(trace_key(trace_id)) for trace_id in sorted(waits.traces))
            saved = journal.checkpoint()
            for row in journal.rows(after=saved.seq if saved else 0):
                yield from (WorkItem(row_key(row.seq, row.arrival), place) for place in range(row.n))

    def _rate(self):
        self.reload(f"{LENIENT}[sampling]\nrate = {self._rng.choice([1.0, 0.5, 0.02])}\n")

    def _damaged(self):
        self.damage()
        self.tick(0.1)  # what waited is on disk again

    def _forget(self):
        if self._users.traces:
            self.forgot = True
            self.forget(self._rng.choice(self._users.traces[-4:]))

    def _forget_while_down(self):
        self._down(self._forget)


def end(chaos):
    """Wait until everything is done, and look at what is on disk."""
    chaos.tick(700)
    chaos.tick(1)
    chaos.save()
    assert (chaos.books.pending, chaos.books.residual) == (0, 0), chaos.log
    account = chaos.verified()
    assert account.holds, (account.failed, account.stages, chaos.log)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_every_request_is_accounted_for_and_a_replay_agrees(tmp_path, seed):
    """Requests of all kinds, crashes, checkpoints, hours, rates, damage, poison: after each of them."""
    with Chaos(tmp_path, seed, forgets=False) as chaos:
        for _ in range(STEPS):
            chaos.step()
            assert chaos.books.residual == 0, (chaos.log, chaos.books)
            assert chaos.agrees(), chaos.log
        end(chaos)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_forgotten_meanwhile_every_request_is_accounted_for(tmp_path, seed):
    """Beside a running server and while nobody serves; until the first time a replay agrees as well."""
    with Chaos(tmp_path, seed, forgets=True) as chaos:
        for _ in range(STEPS):
            chaos.step()
            assert chaos.books.residual == 0, (chaos.log, chaos.books)
            assert chaos.forgot or chaos.agrees(), chaos.log
        end(chaos)
        assert chaos.forgot
