"""Results whose attributes ask a server: an application reads from them, byte for byte, what it reads undecorated.

No code of theirs runs in ragmon's thread.
"""

from __future__ import annotations

import io
import json
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import celery
import celery.result
import httpx
import pytest
import requests
import sqlalchemy as sa
from sqlalchemy import event, orm, pool
from urllib3 import HTTPResponse

import ragmon
from ragmon.testing import Collected, defaults
from tests.support.waiting import TIMEOUT

THREADS = 4
BATCH = 50
"""Calls of one thread whose results lie open until ragmon has read them."""
WORDS = [f"word{number:02d} ".encode() for number in range(40)]


class Base(orm.DeclarativeBase):
    pass


class Reply(Base):
    __tablename__ = "reply"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    answer: orm.Mapped[str]
    context: orm.Mapped[str] = orm.mapped_column(deferred=True)
    documents: orm.Mapped[list[Source]] = orm.relationship()


class Source(Base):
    __tablename__ = "source"
    id: orm.Mapped[str] = orm.mapped_column(primary_key=True)
    text: orm.Mapped[str]
    reply_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("reply.id"))


class World:
    """What an application asks for, and how it reads the result; `asked_by` has the threads whose code ran."""

    def __init__(self, path):
        self.asked_by = set()

    def note(self, *_):
        self.asked_by.add(threading.current_thread().name)


class OpenRequests(World, requests.adapters.BaseAdapter):
    """A reply of requests whose body still streams."""

    def send(self, request, **_):
        raw = HTTPResponse(body=self, status=200, preload_content=False)
        raw._fp = _Body(self.note)
        response = requests.Response()
        response.status_code, response.raw, response.request = 200, raw, request
        return response

    def ask(self, number):
        session = requests.Session()
        session.mount("http://", self)
        return session.get(f"http://model/{number}", stream=True)

    def read(self, response):
        return b"".join(response.iter_content(7))

    def close(self):
        pass


class _Body(io.BytesIO):
    """A connection that says who reads it."""

    def __init__(self, note):
        super().__init__(b"".join(WORDS))
        self._note = note

    def read(self, *size):
        self._note()
        return super().read(*size)


class OpenHttpx(World):
    """A reply of httpx whose body still streams."""

    def ask(self, number):
        client = httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200, content=self._body())))
        return client.send(client.build_request("GET", f"http://model/{number}"), stream=True)

    def _body(self):
        for word in WORDS:
            self.note()
            yield word

    def read(self, response):
        return b"".join(response.iter_bytes())


class OpenSession(World):
    """A row of SQLAlchemy with a deferred column and a lazy relationship, of a session that lives on and commits."""

    poolclass = None

    def __init__(self, path):
        super().__init__(path)
        arguments = {"check_same_thread": False, "timeout": TIMEOUT}
        url = f"sqlite:///{path / 'replies.db'}"
        self.engine = sa.create_engine(url, connect_args=arguments, poolclass=self.poolclass)
        Base.metadata.create_all(self.engine)
        with orm.Session(self.engine) as session:
            for n in range(20):
                documents = [Source(id=f"d{n}", text="a text")]
                session.add(Reply(id=n, answer=f"answer {n}", context="a context", documents=documents))
            session.commit()
        event.listen(self.engine, "before_cursor_execute", self.note)
        self.local = threading.local()

    def session(self):
        if not hasattr(self.local, "session"):
            self.local.session = orm.Session(self.engine)
        return self.local.session

    def ask(self, number):
        return self.session().get(Reply, number % 20)

    def read(self, reply):
        text = f"{reply.answer} {reply.context} {[source.id for source in reply.documents]}"
        self.session().commit()
        return text.encode()


class NullPool(OpenSession):
    """The same with a connection for each transaction."""

    poolclass = pool.NullPool


class ClosedSession(OpenSession):
    """A row of a session that ended with the request: what is not loaded cannot be read."""

    def ask(self, number):
        with orm.Session(self.engine) as session:
            reply = session.get(Reply, number % 20)
            session.commit()
            return reply

    def read(self, reply):
        try:
            return reply.answer
        except orm.exc.DetachedInstanceError as error:
            return error.code.encode()


class CeleryResult(World):
    """A task's result, which lies in a backend."""

    def __init__(self, path):
        super().__init__(path)
        self.app = celery.Celery("app", broker="memory://", backend="cache+memory://")
        for n in range(20):
            self.app.backend.store_result(str(n), f"answer {n}", "SUCCESS")

    def ask(self, number):
        return _Asked(str(number % 20), app=self.app, note=self.note)

    def read(self, result):
        return result.result.encode()


class _Asked(celery.result.AsyncResult):
    def __init__(self, *args, note, **kwargs):
        super().__init__(*args, **kwargs)
        self._note = note

    def _get_task_meta(self):
        self._note()
        return super()._get_task_meta()


class Sqlite(World):
    """An object whose properties ask a database that only the thread of the request may use."""

    def ask(self, number):
        connection = sqlite3.connect(":memory:")
        return _Row(connection, number, self.note)

    def read(self, row):
        return row.answer.encode()


class _Row:
    def __init__(self, connection, number, note):
        self._connection, self._number, self._note = connection, number, note

    @property
    def answer(self):
        self._note()
        return self._connection.execute("SELECT 'answer ' || ?", (self._number,)).fetchone()[0]

    documents = answer


WORLDS = [OpenRequests, OpenHttpx, OpenSession, NullPool, ClosedSession, CeleryResult, Sqlite]


def results(world, ask, flush, calls):
    """What an application of several threads reads, in the order of its calls."""

    def work(first):
        read = []
        for start in range(first, calls, BATCH * THREADS):
            open_results = [ask(n) for n in range(start, start + BATCH)]
            flush()
            read += [world.read(result) for result in open_results]
        return read

    with ThreadPoolExecutor(THREADS, "application") as executor:
        return list(executor.map(work, range(0, BATCH * THREADS, BATCH)))


def compare(kind, path, calls):
    """Run an application undecorated and decorated."""
    world = kind(path)
    expected = results(world, world.ask, lambda: None, calls)
    world.asked_by.clear()
    sink = Collected()
    installation = ragmon.install(defaults(), sink=sink)
    try:
        traced = ragmon.trace(sample=1.0)(world.ask)
        assert results(world, traced, lambda: installation.flush(TIMEOUT), calls) == expected
    finally:
        installation.shutdown()
    assert len(sink.records) == calls, "each call is a record, whatever of it can be read"
    assert {name.partition("_")[0] for name in world.asked_by} <= {"application"}, "ragmon's thread asks for nothing"


@pytest.mark.parametrize("kind", WORLDS)
def test_an_application_reads_from_a_traced_function_what_it_reads_from_a_plain_one(kind, tmp_path):
    compare(kind, tmp_path, THREADS * BATCH)


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORLDS)
def test_the_same_over_five_thousand_calls(kind, tmp_path):
    compare(kind, tmp_path, 5_000)


DJANGO = """
import json, sys, threading
import django
from django.conf import settings
database = {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}
settings.configure(DATABASES={"default": database}, DEFAULT_AUTO_FIELD="django.db.models.AutoField")
django.setup()
from django.db import connection, models
import ragmon
from ragmon.testing import capture_traces

class Source(models.Model):
    text = models.TextField()
    class Meta: app_label = "app"

class Reply(models.Model):
    answer = models.TextField()
    text = models.TextField()
    context = models.ForeignKey(Source, on_delete=models.CASCADE)
    class Meta: app_label = "app"

with connection.schema_editor() as editor:
    editor.create_model(Source)
    editor.create_model(Reply)
Reply.objects.create(answer="at nine", text="a text", context=Source.objects.create(text="a context"))
asked_by = []
from django.db.backends.utils import CursorWrapper
execute = CursorWrapper.execute
def noted(self, *args):
    asked_by.append(threading.current_thread().name)
    return execute(self, *args)
CursorWrapper.execute = noted
with capture_traces() as records:
    whole = ragmon.trace(lambda question: Reply.objects.get())("q")
    deferred = ragmon.trace(lambda question: Reply.objects.defer("answer", "text").get())("q")
read = [whole.answer, deferred.answer, deferred.context.text]
print(json.dumps([sorted(set(asked_by)), [record.answer_json.claim for record in records], read]))
"""


def test_a_model_of_django_is_read_as_far_as_it_was_loaded(tmp_path):
    """Neither a deferred field nor a foreign key is asked for; the fields that are there are the answer."""
    command = [sys.executable, "-c", DJANGO, str(tmp_path / "replies.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["MainThread"], ["at nine", None], ["at nine", "at nine", "a context"]]
