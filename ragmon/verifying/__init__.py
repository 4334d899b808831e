"""Is everything that came in accounted for: asked of a server, or found in its journal."""

from ragmon.verifying.account import Account, of_server

__all__ = ["Account", "of_server"]
