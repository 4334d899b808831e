"""Makes what a support team has: the bot's answers under two releases, and a sheet of what was right."""

from openpyxl import Workbook

PIERS = ("north", "south", "east", "old")
FERRIES = range(100)


def save(name, header, rows):
    """Write a workbook of one sheet."""
    book = Workbook()
    for row in (header, *rows):
        book.active.append(row)
    book.save(name)


def answers(release):
    """A row for each question. Release 1.1 names the north pier whatever it is asked."""
    for number in FERRIES:
        pier = PIERS[number % 4] if release == "1.0" else "north"
        answer = f"Ferry {number} leaves from the {pier} pier."
        yield [f"Where does ferry {number} leave?", answer, f"ferry#{number}; piers#1"]


def truth():
    """A row for each question: what a right answer says, and where it stands."""
    for number in FERRIES:
        reference = f"Ferry {number} leaves from the {PIERS[number % 4]} pier."
        yield [f"Where does ferry {number} leave?", reference, f"ferry#{number}"]


for release in ("1.0", "1.1"):
    save(f"answers-{release}.xlsx", ["user_question", "bot_answer", "docs"], answers(release))
save("truth.xlsx", ["question", "reference", "reference_context_ids"], truth())
