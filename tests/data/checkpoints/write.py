"""Writes a checkpoint of version 1, and what the ragmon that wrote it came to afterwards.

    python write.py SOURCES

SOURCES is a folder with the `ragmon` package of 701bcbd, the last commit that wrote version 1
(`git archive 701bcbd ragmon | tar x -C SOURCES`). Run it in a tree of 356ba73, whose
helpers use the names of that package.
"""

from __future__ import annotations

import json
import lzma
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2]))
sys.path.insert(0, sys.argv[1])

from ragmon.config.load import load  # noqa: E402
from ragmon.server.pipeline.state import ServerState  # noqa: E402
from tests.support.alarming import write_config  # noqa: E402
from tests.support.saved import SAVED_AFTER, account, batches  # noqa: E402


def main() -> None:
    """Write the checkpoint in the middle, and the account at the end."""
    with tempfile.TemporaryDirectory() as at:
        server_state = ServerState(load(write_config(Path(at)), environ={}))
        for seq, arrival, counts, entries in batches():
            server_state.apply(seq, arrival, counts, entries)
            if seq == SAVED_AFTER:
                (HERE / "version-1.json.xz").write_bytes(lzma.compress(server_state.dump(), preset=9))
        (HERE / "version-1-then.json").write_text(json.dumps(account(server_state), indent=1) + "\n")


if __name__ == "__main__":
    main()
