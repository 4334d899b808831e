"""Die Auskunft eines Bürgeramts: antwortet auf Deutsch, und sagt auf Deutsch, wenn nichts zu finden ist."""

import re
import sys

import ragmon

DOKUMENTE = {
    "ausweis": "Einen Personalausweis beantragen Sie persönlich im Bürgeramt. Er kostet 37 Euro.",
    "reisepass": "Ein Reisepass kostet 70 Euro und ist nach sechs Wochen abholbereit.",
    "ummeldung": "Nach einem Umzug melden Sie sich innerhalb von zwei Wochen um. Die Ummeldung ist gebührenfrei.",
    "fuehrungszeugnis": "Ein Führungszeugnis kostet 13 Euro und wird per Post zugestellt.",
    "hund": "Jeder Hund ist innerhalb von vier Wochen anzumelden. Die Hundesteuer beträgt 108 Euro im Jahr.",
    "parken": "Der Bewohnerparkausweis gilt zwei Jahre und kostet 30 Euro.",
    "trauung": "Für eine Trauung melden sich beide Partner frühestens sechs Monate vorher beim Standesamt an.",
    "sperrmuell": "Sperrmüll wird zweimal im Jahr kostenlos abgeholt, der Termin ist online zu buchen.",
}
UNBEKANNT = [
    "Dazu liegen mir leider keine Informationen vor.",
    "Das weiß ich leider nicht.",
    "In den Unterlagen konnte ich dazu nichts finden.",
    "Diese Frage kann ich anhand der vorliegenden Dokumente nicht beantworten.",
]


def woerter(text):
    return {wort for wort in re.findall(r"\w+", text.lower()) if len(wort) > 4}


def suche(frage, anzahl=3):
    treffer = {name: len(woerter(frage) & woerter(text)) for name, text in DOKUMENTE.items()}
    namen = sorted(DOKUMENTE, key=lambda name: -treffer[name])[:anzahl]
    return [{"id": name, "text": DOKUMENTE[name], "score": treffer[name]} for name in namen]


def formuliere(frage, stellen):
    """Was das Sprachmodell täte: die beste Stelle wiedergeben, oder sagen, dass nichts da steht."""
    beste = stellen[0]
    return beste["text"] if beste["score"] else UNBEKANNT[len(frage) % len(UNBEKANNT)]


@ragmon.trace
def antworten(frage, sprache="de"):
    stellen = suche(frage)
    ragmon.record(retrieved=stellen)
    return formuliere(frage, stellen)


if __name__ == "__main__":
    ragmon.install()
    for zeile in sys.stdin:
        print(antworten(zeile.strip()), flush=True)
