"""Gold sets: questions whose answers are known, their files, versions and differences."""

from ragmon.ingest.gold import GoldIndex, GoldSet

__all__ = ["GoldIndex", "GoldSet"]
