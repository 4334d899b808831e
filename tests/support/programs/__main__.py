"""Ask the program of a combination every question: `python -m tests.support.programs NAME`.

Runs inside of the environment of a framework, started by `tests.support.record_agents`: standard library,
OpenTelemetry's SDK and the framework, no ragmon. A program is a function that takes its tracer and returns what asks a
question in a session, or a pair of it and what asks with a stream.
"""

from __future__ import annotations

import importlib
import json
import os
import sys

from tests.support.agent_model import FAILING, TURNS
from tests.support.combinations import COMBINATIONS, MARK
from tests.support.programs.timetable import found
from tests.support.programs.tracers import TRACERS


def main(name):
    """Print what the program really returned, a line a question."""
    combination = COMBINATIONS[name]
    module, _, function = combination.program.partition(":")
    program = getattr(importlib.import_module(f"tests.support.programs.{module}"), function)
    tracer = TRACERS[combination.tracer](combination)
    made = program(tracer, *combination.arguments)
    ask, stream = made if isinstance(made, tuple) else (made, None)
    for question, session, is_stream in TURNS:
        call = stream if is_stream else ask
        if call is None:
            continue
        found.clear()
        told = {"q": question, "stream": is_stream, "session": session, "answer": None, "error": None}
        try:
            with tracer.session(session):
                told["answer"] = call(question, session)
        except Exception as error:
            if question != FAILING:
                raise
            told["error"] = type(error).__name__
        tracer.flush()
        sys.stdout.write(MARK + json.dumps({**told, "found": found}) + "\n")
        sys.stdout.flush()
        sys.stdin.readline()  # until what came is kept
    os._exit(0)  # threads of telemetry that cannot reach anybody are not waited for


if __name__ == "__main__":
    main(sys.argv[1])
