"""Gold sets: questions whose answers are known, their files, versions and differences."""

from ragmon.gold.sets import GoldIndex, GoldSet

__all__ = ["GoldIndex", "GoldSet"]
