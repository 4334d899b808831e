"""A town hall's bot: a sheet saved by a German Excel, with semicolons, in cp1252, with German columns and refusals."""

from tests.support.command_line import ragmon
from tests.support.strangers import Truth

LOG, GOLD = "protokoll.csv", "soll.jsonl"
FLAGS = ["--encoding", "cp1252", "--map", "question=Frage,answer=Antwort,retrieved_ids=Fundstellen,citations=Quellen"]
FEES = {"Reisepass": "70", "Führerschein": "38,30", "Geburtsurkunde": "12", "Meldebescheinigung": "9", "Hund": "120"}
WHERE = ["Köln", "Bonn", "Düren", "Neuß", "Aachen", "Essen", "Hagen", "Moers"]


def write(folder):
    """40 questions about fees, each with its fee, and 10 that the handbook is silent about."""
    log, truth = ["Nr;Frage;Antwort;Fundstellen;Quellen"], ["Frage;Musterantwort;Belege"]
    for number, (town, (what, fee)) in enumerate((town, pair) for town in WHERE for pair in FEES.items()):
        question, source = f"Was kostet {what} in {town}?", f"Gebührenordnung {town} §{number}"
        truth.append(f"{question};{fee} €;{source}")
        log.append(f'{number};{question};"Die Gebühr beträgt {fee} €; zahlbar bar.";{source}|Satzung 1;{source}')
    for number in range(10):
        question = f"Wer war {1900 + number} Bürgermeister?"
        truth.append(f"{question};;")
        refusal = "Dazu liegen mir leider keine Informationen vor."
        log.append(f"{40 + number};{question};{refusal};Satzung 1|Satzung 2;")
    (folder / LOG).write_text("\r\n".join(log) + "\r\n", encoding="cp1252")
    (folder / "soll.csv").write_text("\r\n".join(truth) + "\r\n", encoding="cp1252")
    columns = "question=Frage,gold_claim_substr=Musterantwort,gold_ids=Belege"
    reading = ["--encoding", "cp1252", "--map", columns, "--empty-reference", "unanswerable", "--output", folder / GOLD]
    assert ragmon("gold", "from-table", folder / "soll.csv", *reading).code == 0


TRUTH = Truth(
    read=50,
    metrics={"answer_precision": 1.0, "under_refusal_rate": 0.0, "over_refusal_rate": 0.0, "refusal_rate": 0.2}
    | {"recall": 1.0, "precision": 0.5, "mrr": 1.0, "citation_scope": 1.0, "coverage": 1.0, "citation_hit_rate": 1.0},
    n={"answer_precision": 40, "under_refusal_rate": 10, "recall": 40},
    passes=["answer_precision", "citation_hit_rate", "citation_scope", "coverage", "under_refusal_rate"],
)
