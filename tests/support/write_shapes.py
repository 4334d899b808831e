"""Writes what ragmon answers on records, commands, requests, bad servers and the drill: `... [NAME ...]`.

`python -m tests.support.write_shapes` writes all; names of subjects say which.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.support import before_commands, before_drill, before_exporter, before_http, before_records
from tests.support.before import write_golden

if __name__ == "__main__":
    subjects = before_records.SUBJECTS | before_commands.SUBJECTS | before_http.SUBJECTS
    subjects |= before_exporter.SUBJECTS | before_drill.SUBJECTS
    subjects |= before_records.CASES if before_records.cases() else {}
    for name in sys.argv[1:] or list(subjects):
        with tempfile.TemporaryDirectory() as folder:
            for subject, content in subjects[name](Path(folder)).items():
                write_golden(subject, content)
                sys.stderr.write(f"{subject}\n")
