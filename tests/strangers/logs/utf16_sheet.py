"""Excel's "Unicode text" is UTF-16 with tabs: whoever exports it so is told which flag reads it."""

from tests.support.strangers import Truth

LOG = "Export.txt"


def write(folder):
    """12 questions with answers."""
    rows = ["Question\tAnswer", *(f"Où est le quai {n} ?\tLe quai {n} est à gauche." for n in range(12))]
    (folder / LOG).write_text("\r\n".join(rows) + "\r\n", encoding="utf-16")


TRUTH = Truth(refused=True, words=["this is UTF-16", "--encoding utf-16"])
