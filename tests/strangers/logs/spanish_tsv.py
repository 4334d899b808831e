"""A tourist office's bot, in Spanish: a TSV with its own dates, one wrong answer of 20 and one refusal too many."""

import json

from tests.support.strangers import Truth

LOG, GOLD = "registro.tsv", "verdad.jsonl"
CASTLES = {"Loarre": "1020", "Coca": "1453", "Belmonte": "1456", "Olite": "1269", "Peñafiel": "945"}
ASKED = ["¿Cuándo se construyó", "¿De qué año es", "¿Qué año se cita para", "¿Desde cuándo existe"]


def write(folder):
    """20 questions with an answer, 5 without."""
    rows, gold = ["user_question\tbot_answer\tdocs\tcitations\tfecha"], []
    for number, (asked, (castle, year)) in enumerate((asked, pair) for asked in ASKED for pair in CASTLES.items()):
        question, doc = f"{asked} el castillo de {castle}?", f"{castle}-{number}"
        answer = f"El castillo de {castle} es del año {year}."
        if number == 7:
            answer = f"El castillo de {castle} es del año 1999."
        if number == 13:
            answer = "Lo siento, no he encontrado esa información en los documentos."
        cited = "[]" if number == 13 else json.dumps([doc])
        rows.append(f"{question}\t{answer}\t{json.dumps([doc, 'plano'])}\t{cited}\t2025-11-20 10:{number:02d}")
        gold.append({"qid": f"c{number}", "question": question, "answerable": True, "gold_claim_substr": [year]})
        gold[-1]["gold_citations"] = [doc]
    for number, ruler in enumerate(["Wamba", "Ervigio", "Égica", "Witiza", "Agila"]):
        question = f"¿Dónde desayunaba el rey {ruler}?"
        rows.append(f'{question}\tNo tengo información sobre eso.\t["plano"]\t[]\t2025-11-20 11:{number:02d}')
        gold.append({"qid": f"r{number}", "question": question, "answerable": False})
    (folder / LOG).write_text("\n".join(rows) + "\n", encoding="utf-8")
    (folder / GOLD).write_text("".join(json.dumps(item) + "\n" for item in gold), encoding="utf-8")


FLAGS = ["--map", "ts=fecha"]
TRUTH = Truth(
    read=25,
    metrics={"answer_precision": 18 / 19, "over_refusal_rate": 0.05, "under_refusal_rate": 0.0, "refusal_rate": 0.24}
    | {"citation_hit_rate": 1.0, "recall": 1.0, "error_rate": 0.0, "empty_retrieval_rate": 0.0},
    n={"answer_precision": 19, "over_refusal_rate": 20, "under_refusal_rate": 5},
    passes=["answer_precision", "over_refusal_rate", "under_refusal_rate", "citation_hit_rate", "error_rate"],
)
