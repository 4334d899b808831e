"""A decorated function under a monitor in its process: `before_worker.py` runs this script."""

import json
import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path

import ragmon


def watched(minutes, paths):
    """Answer each minute's questions as the records say; what the monitor's port says in the end, by path."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    told = f'[sampling]\nrate = 1.0\n[pipeline]\nname = "support"\n[serve]\nadmin = "127.0.0.1:{port}"\n'
    with Path("ragmon.toml").open("a", encoding="utf-8") as config:
        config.write(told)
    installed = ragmon.install("ragmon.toml")
    clock = sys.modules["__main__"].clock
    for rows in minutes:
        clock[0] += 60
        for row in rows:
            _answer(row)
        installed.flush()
    said = {path: _read(f"http://127.0.0.1:{port}{path}") for path in paths}
    installed.shutdown()
    return said


def _answer(row):
    @ragmon.trace("support")
    def support(question):
        if row.get("error"):
            raise TimeoutError
        ragmon.record(**{name: row[name] for name in ("build", "index_hash", "session", "tags", "qid") if name in row})
        ragmon.record(retrieved=row["retrieved_ids"])
        return row["answer_json"]

    try:
        support(row["q"])
    except TimeoutError:
        return


def _read(address):
    try:
        with urllib.request.urlopen(address) as answer:
            text = answer.read().decode()
    except urllib.error.HTTPError as error:
        return [error.code, json.loads(error.read())]
    if text.startswith("{"):
        return json.loads(text)
    return {name: float(value) for name, _, value in map(_sample, text.splitlines()) if not name.startswith("#")}


def _sample(line):
    return line.rpartition(" ")
