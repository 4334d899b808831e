"""`ragmon.install_signal_handlers`: what is on its way is delivered when the process is asked to end."""

from __future__ import annotations

import signal

from ragmon.capture import signals
from ragmon.installation import drain


def install_signal_handlers() -> None:
    """Deliver what is on its way when the process gets SIGTERM, then do what was done before.

    A second signal passes straight through. Servers that handle SIGTERM and end the process in order need this not:
    ragmon delivers then. uvicorn needs it, called in the application's module: it raises the signal once more at the
    end, and exit handlers do not run.

    Raises:
        RagmonError: This is not the main thread, where alone Python lets handlers be set.
    """
    signals.install(signal.SIGTERM, drain)
