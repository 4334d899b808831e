"""A help desk in Japanese: CSV with a byte order mark, marks as 【1】, refusals as 「見つかりませんでした」."""

import json

from tests.support.strangers import Truth

LOG, GOLD = "問い合わせ.csv", "正解.jsonl"
REFUSALS = ["申し訳ございませんが、資料には記載がありません。", "その情報は見つかりませんでした。", "わかりません。"]


def write(folder):
    """30 answers with the number of the form, 9 refusals."""
    rows, gold = ["question,answer,retrieved_ids"], []
    for number in range(30):
        question, page = f"手続き{number}の用紙は何番ですか。", f"規程{number}"
        rows.append(f'{question},用紙は{number + 300}番です【1】。,"[""{page}"", ""目次""]"')
        gold.append({"qid": f"y{number}", "question": question, "answerable": True})
        gold[-1] |= {"gold_claim_substr": [f"{number + 300}番"], "gold_citations": [page]}
    for number in range(9):
        question = f"部長{number}の好物は何ですか。"
        rows.append(f'{question},{REFUSALS[number % 3]},"[""目次""]"')
        gold.append({"qid": f"b{number}", "question": question, "answerable": False})
    (folder / LOG).write_text("\n".join(rows) + "\n", encoding="utf-8-sig")
    (folder / GOLD).write_text("".join(json.dumps(item) + "\n" for item in gold), encoding="utf-8-sig")


TRUTH = Truth(
    read=39,
    metrics={"answer_precision": 1.0, "under_refusal_rate": 0.0, "over_refusal_rate": 0.0, "refusal_rate": 9 / 39},
    passes=["answer_precision", "citation_hit_rate", "under_refusal_rate", "over_refusal_rate", "coverage"],
)
