"""Wordings of refusals as data: what opens a refusal, and what takes it back. The Romance languages have their own file.

Texts are folded before (NFKC, casefold; the typographic apostrophe is a plain one): patterns are written in small
letters, with `ss` for the sharp s. Every repetition is bounded, so that the time grows no faster than the text.
`ragmon.core.refusals` compiles the table and says how it is read.

Wordings of refusals in French, Spanish, Portuguese and Italian; `ragmon.core.refusal_patterns` says how they are written.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Language(NamedTuple):
    """The wordings of one language.

    Attributes:
        code: The language (ISO 639-1).
        triggers: Words, one of which every opening holds, parted by spaces; in unspaced scripts parts of text.
        openings: What says that there is no answer; each starts at the first letter of a word. Before its colon stand the
            first letters, at most three, of all words that it may start with; `^` where it starts a text. In unspaced
            scripts nothing stands before it.
        preambles: How a text may begin that still refuses in a later sentence: thanks, regrets, what was searched.
        turns: What follows an opening where an answer follows after all.
        unless: What an opening must not stand behind in its own sentence: a condition, an answer that it limits.
        hedges: What makes an opening the hedge of an answer: it says that something is not known in so many words or
            not for certain and goes on, or another source or a conclusion follows. Searched from where it begins.
        is_spaced: Words are parted by spaces.
    """

    code: str
    triggers: str
    openings: tuple[str, ...]
    preambles: str
    turns: str
    unless: str
    hedges: str
    is_spaced: bool = True


_NOT: Final = r"(?: not|n't)"
_CANNOT: Final = rf"(?:cannot|can not|can't|could{_NOT})"
_I_AM: Final = r"(?:i am|i'm|we are|we're|i was|we were)"
_SOURCES: Final = (
    r"(?:contexts?|passages?|documents?|documentation|sources?|texts?|articles?|excerpts?|snippets?|materials?"
    r"|(?:search|retrieved) results|references|knowledge base|information|handbook|manual|files|reports?)"
)
_THE_SOURCES: Final = rf"(?:the|this|these|any|your|our|my|any of the) (?:\w+ ){{0,2}}{_SOURCES}"
_KNOWLEDGE: Final = r"(?:information|mention|data|details?|context|answers?|evidence|records?|documents?|entry|entries)"
_FIND: Final = r"(?:find|locate|determine|identify|infer|answer|tell|say|confirm|verify|help|assist|comment|respond)"
_GIVE: Final = (
    r"(?:provide|give|offer) (?:you )?(?:with )?(?:(?:any|an?|that|this|the|specific|definitive|direct|legal|medical|"
    r"financial) ){0,2}(?:information|answers?|details?|advice|opinion)"
)
_MENTION: Final = (
    r"(?:mention|specify|state|provide|contain|include|say|discuss|address|cover|give|indicate|describe|answer|explain"
    r"|list|offer|have|reveal|name|clarify|detail|refer|talk)"
)
_HAS: Final = r"(?:contains?|has|have|makes?|provides?|gives?|includes?|offers?)"
_ORDINAL: Final = (
    r"(?:second|third|fourth|fifth|other|others|last|next|latter|appendix|annex|footnotes?|tables?|figures?)"
)
_SAYS: Final = (
    r"(?:does|do|says?|states?|shows?|gives?|lists?|reads?|names?|puts?|implies|imply|suggests?|indicates?|mentions?)"
)
_DEGREE: Final = (
    r"(?:explicitly|directly|direct|verbatim|outright|literally|word for word|in (?:so|these|as) many words|by name|precisely"
    r"|independently|explicit|exact|definitive|complete|fully|entirely|for (?:certain|sure)|with (?:\w+ )?certainty"
    r"|(?:full|whole|entire|complete) (?:list|history|picture|story|text|details?))"
)
_GIVES_NOTHING: Final = r"sorry|apolog|you\b|(?:it|that|this) (?:is|was) (?:about|best)|it (?:would|might|may) be (?:best|better|worth)|more |further"
_NO_NEGATION: Final = r"(?![^.;!?]{0,100}(?:\bnot?\b|n't\b|\bcannot\b|\bnothing\b|\bnone\b|\bunable\b))"
_HARD: Final = r"(?:not possible|impossible|difficult|hard)"
_ENGLISH_KEEPS: Final = (
    rf"(?:it|they|these|that|(?:the|these) (?:\w+ ){{0,3}}{_SOURCES})(?: \w+){{0,3}} (?:mention|state|say|discuss|describe"
    r"|cover|indicat|contain|note|provid|includ|refer|talk|list|explain|focus|address)\w*"
    rf"|(?:i|we)(?: do| did| am| was| are)?{_NOT}|(?:i|we) (?:{_CANNOT}|(?:am|was|are) unable|have no|found no|(?:would )?need)"
    r"|i can (?:help|try|offer|look|suggest|assist)|i(?: would|'d) (?:recommend|suggest|advise|be)|i(?: am|'m) happy"
    r"|you (?:can|could|may|might|should) (?:\w+ )?(?:check|contact|try|find|visit|consult|ask|refer|look|search|see|reach)"
    r"|please|feel free|if you (?:can|could|provide|share|give|tell|let|need|would|want|like)|none|nothing|unfortunately"
    r"|it(?:'s| is| may be| might be) (?:best|recommended|advisable|worth|not|important)|no (?:\w+ )?information"
    r"|the (?:\w+ ){0,10}can be found (?:through|in|on|at)"
    r"|i can (?:tell you that i do not|provide you with an? (?:\w+ )?(?:overview|summary))"
    r"|[^.!?]{0,80}\b(?:i (?:do not|don't|cannot|can't)|is not specified)\b|[^?]{0,120}\b(?:can|could) you (?:please )?(?:specify|clarify)"
)

_ENGLISH_SOURCE_HEADS: Final = "are art con cou did doc doe don exc fil han has hav inf isn kno man mat not pas ref rep ret sea sni sou tex was wer"
ENGLISH: Final = Language(
    "en",
    (
        "not t no none neither nothing unable sorry apologies lack lacks silent cannot insufficient missing "
        "absent unclear impossible difficult hard unanswerable unknown n need without provide share clarify "
        "rephrase specify outside beyond"
    ),
    (
        # The speaker: does not know, does not have, cannot find.
        rf"i: i (?:really |honestly |simply )?do{_NOT} (?:actually |really )?know(?: (?:the answer|what|who|when|where|how|which|based|from|about)\b|[.,;:!?]|$)",
        rf"we: we do{_NOT} know(?:[.,;:!?]|$)",
        rf"i we: (?:i|we) (?:do|did){_NOT} (?:\w+ )?(?:have|find|see)(?! personal| certain) [^.,;!?]{{0,60}}\b(?:{_KNOWLEDGE}|knowledge)\b",
        rf"i: i do{_NOT} (?:currently )?have (?:(?:any|direct|the) )?(?:access to|ability to)\b",
        rf"i we: (?:i|we) (?:have no|lack|found no)(?: the| any)? (?:\w+ )?(?:{_KNOWLEDGE}|idea)\b",
        rf"i: i {_CANNOT} (?:\w+ ){{0,3}}(?:{_FIND}|{_GIVE}|access)\b",
        rf"we: we {_CANNOT} (?:\w+ )?(?:answer|help|assist|comment|respond|{_GIVE}|find {_KNOWLEDGE})\b",
        rf"i we: (?:{_I_AM} (?:unable|not able)|i (?:was|am)n't able) to (?:\w+ )?(?:{_FIND}|{_GIVE})\b",
        r"i: (?:i am|i'm) (?:not (?:sure (?:what|who|when|where|which|how|about)|aware of any)|afraid (?:that )?(?:this|that|it) is not)\b",
        rf"but i we: (?:but (?:could|did)|(?:i|we) have){_NOT} (?:found|find|been able to find) an[ys]",
        r"i we: (?:i|we) (?:found nothing|have nothing) (?:about|on|in|that|relevant|related)\b",
        rf"did do doe don: (?:do|does|did){_NOT} (?:appear|seem) to be (?:any|an?) (?:\w+ )?{_KNOWLEDGE}\b",
        rf"i we: (?:i|we) do{_NOT} have (?:that|this|the necessary|the relevant|the requested|any such) (?:information|data|details?|answer)\b",
        rf"are is was wer: (?:is|are|was|were) (?:missing|absent) from {_THE_SOURCES}\b",
        r"no sor: (?:sorry|no),? (?:i have )?no (?:idea|clue|information)\b",
        r"^: no idea\b",
        r"^: (?:i'm |i am )?(?:so |very )?sorry[.!]*$",
        rf"^: (?:sorry,? )?unable to {_FIND}\b",
        r"thi: this is not something i can\b",
        r"i: i(?:'d|'ll| would| will)?(?: only)? need (?:to know|more|additional|further)\b",
        r"i: i cannot (?:provide|generate|create|share|reveal) [^.,;!?]{0,60}(?:content|spoilers|personal)\b",
        # The sources: do not say, say nothing, are not enough.
        rf"{_ENGLISH_SOURCE_HEADS}: {_SOURCES}\b[^.,;!?]{{0,60}} (?:(?:do|does|did){_NOT} (?:\w+ )?{_MENTION}|{_HAS} no (?:\w+ )?{_KNOWLEDGE})\b",
        rf"{_ENGLISH_SOURCE_HEADS}: {_SOURCES}\b(?: \w+){{0,4}} (?:lacks?|(?:is|are) (?:silent|insufficient|not (?:sufficient|enough))|says? nothing)\b",
        r"nei: neither of (?:them|the \w+|these \w+) (?:mentions?|answers?|says?|contains?|covers?|discuss(?:es)?|address(?:es)?)\b",
        rf"non: none of (?:{_THE_SOURCES}|them (?:mention|answer|say|contain|discuss|cover|address))\b",
        rf"not: nothing (?:\w+ ){{0,3}}(?:in {_THE_SOURCES}|(?:was|were) (?:found|retrieved))\b",
        rf"{_ENGLISH_SOURCE_HEADS}: (?:not|(?:is|are|was|were|do|does|did|could|has|have)n't) (?:\w+ ){{0,2}}(?:in|by|from|within) {_THE_SOURCES}\b(?! of)",
        # The answer: is not there.
        rf"are is isn was wer: (?<!which )(?<!that )(?<!who )(?:is|are|was|were){_NOT} (?:\w+ly )?(?:mentioned|specified|stated|discussed|addressed)(?! to)\b",
        rf"ans con det inf: (?:information|answer|details?|context) (?:you are looking for |you need )?(?:is|are|was|were){_NOT} (?:available|found|provided|given|included|present)\b",
        r"^: (?:information|answer|details?) not (?:available|found|provided|given)\b",
        rf"no: no (?:\w+ ){{0,2}}{_KNOWLEDGE}\b[^.,;!?]{{0,60}}\b(?:found|available|given|provided|retrieved|{_THE_SOURCES})\b(?! to)",
        r"the: there(?: is| are|'s| (?:seems|appears) to be)(?: \w+ly)? no (?:\w+ )?(?:information|mention|data|details?)(?! fees?| desks?| \w+ing)\b",
        rf"the: there(?: is|'s) nothing (?:(?:\w+ )?in {_THE_SOURCES}|about)\b",
        rf"{_ENGLISH_SOURCE_HEADS}: (?:not|(?:is|are|was|were|do|does|did|could|has|have)n't) (?:any|enough|sufficient) (?:\w+ )?(?:{_KNOWLEDGE})\b",
        r"^: insufficient (?:\w+ )?(?:information|context|data)\b",
        rf"ans exa que thi: (?:question|query|answer|this|exact \w+) {_CANNOT} be (?:\w+ly )?(?:answered|determined|found|inferred|established|verified|confirmed)\b",
        rf"can cou: {_CANNOT} be (?:\w+ly )?(?:answered|determined|found|inferred|established) (?:\w+ ){{0,3}}{_THE_SOURCES}\b",
        rf"it: it(?: is|'s) (?:not clear|unclear|{_HARD}) [^.,;!?]{{0,60}}{_THE_SOURCES}\b",
        rf"it: it(?: is|'s) {_HARD} to (?:answer (?:this|that|the|your)|(?:say|tell|determine) (?:without|who|what|when|where|which|whether|how|exactly))\b",
        r"^: (?:not (?:found|mentioned|specified|stated|provided|answerable|in context)|no answer|unanswerable)\b",
        r"^: (?:unknown|n/a)\W*$",
        r"are is: (?:is|are) not known (?:to me|as (?:my|the) knowledge)\b",
        # The question: asks too little, or too much.
        r"can cou ple: (?:please |(?:can|could) you (?:please )?)(?:provide|share|specify) (?:\w+ )?(?:(?:more|additional|further|specific) |the (?:full|exact|specific))",
        rf"^: without (?:more|additional|further) {_KNOWLEDGE}\b",
        r"can cou: (?:can|could) you (?:please )?(?:clarify|rephrase|specify)\b",
        r"bey out: (?:outside|beyond) (?:of )?(?:my (?:knowledge|scope)|what i can|the scope of (?:the|this|these|my))\b",
    ),
    (
        r"(?:thank|hello|hi\b|hmm|dear|sorry|i(?:'m| am) (?:so |very )?sorry|(?:my |i )?apolog|unfortunately|great question|good question"
        r"|i(?:'ve| have)? (?:\w+ )?(?:looked|checked|searched|reviewed|read|went|understand)|as an ai|after (?:reviewing|searching|checking)"
        r"|there are (?:several|many|multiple)|you asked|your question|based on)"
    ),
    (
        rf"\b(?:however|but|nevertheless|nonetheless|that said|although|though),? (?!{_ENGLISH_KEEPS})"
        r"|\b(?:as of (?!now)|as far as i know|to (?:the best of )?my knowledge|in general,|generally|typically)"
    ),
    r"\W*(?:if|when(?! i)|whenever|unless|because|although|though|while|even if)\b[^,]*$|.*(?:[;,] (?:but|although|though|while|and)|;|\bsa(?:id|ys?) that|\btold|\b(?:who|which)) ?",
    (
        rf"\b{_DEGREE}\b[^.,;:!?]{{0,60}}(?:[.;:] |, (?:but |though |yet )?)(?!{_ENGLISH_KEEPS}|{_GIVES_NOTHING}){_NO_NEGATION}\w"
        rf"|(?:[.;:,] (?:but |though |yet )?|\bbut |\bwhereas |\byet )(?:in |on |from )?(?:the |an? |its )?(?:\w+ )?{_ORDINAL}\b{_NO_NEGATION}[^.;:!?]{{0,40}}?\b{_SAYS}\b"
        rf"|[.;:] (?:based on|according to|judging by|going by|reading|from|taken together|together)\b{_NO_NEGATION}(?![^.;!?]{{0,80}}\b(?:mention|discuss|cover|describ|focus)\w*)"
        rf"|\b(?:but|however|yet),? (?:they|it|together they|the \w+)(?: \w+)? (?:indicates?|suggests?|implies|imply|shows?|says?|states?)(?: that\b|:){_NO_NEGATION}"
        rf"|\bwhereas\b|, yet (?!{_ENGLISH_KEEPS})|[.;] (?:most likely|probably|presumably|in all likelihood|roughly)\b"
        rf"|[.;:] [^.;:!?]{{0,50}}\b(?:implies|imply|suggests?|points? to|indicates?|it follows|can be (?:inferred|deduced|concluded))\b{_NO_NEGATION}"
        rf"|[.;,] (?!{_ENGLISH_KEEPS}){_NO_NEGATION}[^.;:!?]{{2,60}}: (?!{_ENGLISH_KEEPS}|{_GIVES_NOTHING})\w"
        r"|(?:[.;] |, but )(?:(?:they|it|the \w+) (?:do|does|did) \w+|what (?:they|it|the \w+) (?:do|does|did) \w+)\b[^.;!?]{0,40}:"
        rf"|[.;] (?!{_ENGLISH_KEEPS})\w[^.;:!?]{{2,40}} (?:says?|states?)\b{_NO_NEGATION}|\bi (?:would|'d) guess\b|\bmy (?:best )?guess\b"
    ),
)

_DE_SOURCES: Final = (
    r"(?:kontext\w{0,4}|dokument\w{0,8}|quellen?|text(?:e|es|en|stellen?|passagen?|auszüge?n?)?|unterlagen|passagen?|abschnitte?n?|artikel\w{0,2}"
    r"|handbuch|wissensdatenbank|material\w{0,4}|suchergebnisse?n?|auszüge?n?|informationen|fundstellen)"
)
_DE_KNOWLEDGE: Final = r"(?:informationen|information|angaben?|hinweise?|auskünfte|auskunft|daten|einträge?|eintrag|antwort(?:en)?|erwähnung|details|erkenntnisse|aussagen?|stellen?|fundstellen?|treffer|ergebnisse?|kenntnis(?:se)?|belege?|inhalte?|dokumente?|artikel)"
_DE_NO: Final = r"(?:keine|keinen|keinerlei|kein|nichts)"
_DE_KEEPS: Final = (
    rf"(?:wird|werden|steht|enthalten|enthält|erwähnt|(?:der|die|das|er|es|sie) (?:\w+ )?(?:{_DE_SOURCES} )?(?:erwähn|nenn|enth|beschreib|behandel|sprech|spricht)\w*)"
    r"|(?:ich|wir|sie) (?:habe|kann|können|finde|konnte|weiss|verstehe|bin|empfehle)|(?:kann|konnte|habe|finde) ich|bitte|gerne?"
    r"|wenden|nicht|keine?|leider|dazu|hierzu|darüber"
)
_GERMAN_SOURCE_HEADS: Final = "abs ang ant art aus bel dat det dok ein erg erk erw fun han hin inf inh ken kon mat pas que ste suc tex tre unt wis"
GERMAN: Final = Language(
    "de",
    (
        "nicht nichts kein keine keinen keinerlei leider unklar ahnung fehlen fehlt unbekannt unzureichend "
        "ausserhalb umfang rahmen inhalt unmöglich formulieren präzisieren"
    ),
    (
        r"das die es: (?:das|dies|es) (?:weiss|wissen) (?:ich|wir) (?:leider )?(?:auch )?nicht\b",
        r"hab wei wis: (?:weiss|wissen|habe|haben) (?:ich|wir) (?:\w+ )?keine antwort\b",
        r"ich wir: (?:ich|wir) (?:habe|haben) [^.;!?]{0,30}\bnichts [^.;!?]{0,60}(?:gefunden|finden)\b",
        r"ich wir: (?:ich|wir) (?:weiss|wissen) (?:es |das |dies )?(?:leider )?nicht\b",
        r"^: keine (?:ahnung|angaben?|antwort|informationen?)\b(?! (?:über|zu[rm]? (?:dritte|person)))[^.,;!?]{0,30}(?:[.!]|$|verfügbar|gefunden|vorhanden)",
        r"^: (?:dazu |hierzu )?(?:leider )?(?:keine angabe|nicht (?:im (?:kontext|text|dokument)|angegeben|bekannt|erwähnt|gefunden|enthalten))\b",
        rf"lie: liegen (?:mir|uns) (?:\w+ ){{0,4}}{_DE_NO} (?:\w+ ){{0,2}}{_DE_KNOWLEDGE}\b",
        rf"fin hab kan kon: (?:konnte|kann|habe|haben|konnten|finde|finden) (?:ich|wir)\b[^.;!?]{{0,90}} (?:{_DE_NO} (?:\w+ ){{0,3}}{_DE_KNOWLEDGE}|nichts|keinen zugriff)\b",
        rf"ich wir: (?:ich|wir) (?:konnte|kann|habe|haben|finde|finden)\b[^.;!?]{{0,90}} (?:{_DE_NO} (?:\w+ ){{0,2}}{_DE_KNOWLEDGE}|nichts (?:gefunden|finden|dazu)|keinen zugriff)\b",
        r"kan kön: (?:kann|können) (?:ich|wir)\b[^.;!?]{0,70} nicht (?:\w+ )?(?:beantworten|weiterhelfen|helfen|sagen|finden|beurteilen)\b",
        r"ich wir: (?:ich|wir) (?:kann|können|konnte)\b[^.;!?]{0,70} nicht (?:\w+ )?(?:beantworten|weiterhelfen|helfen|sagen|finden|beurteilen|mitteilen)\b",
        r"ich: ich (?:bin mir|bin) (?:\w+ )?nicht sicher\b",
        r"ich wir: (?:ich|wir) verstehe(?:n)? (?:die|ihre|deine) frage (?:leider )?nicht\b",
        rf"{_GERMAN_SOURCE_HEADS}: {_DE_KNOWLEDGE} (?:fehlt|fehlen) (?:\w+ )?(?:in|im)\b",
        rf"dar dav daz hie: (?:dazu|hierzu|darüber|davon)\b[^.;!?]{{0,20}} (?:gibt|geben|enthält|enthalten|sagt|sagen|macht|machen|bietet|liefert|finden sich|steht)\b[^.;!?]{{0,50}} {_DE_NO}\b",
        r"ich wir: (?:ich|wir) (?:habe|haben) (?:\w+ )?(?:davon |darüber |hierüber )?keine (?:ahnung|kenntnis)\b",
        r"ist sin: (?:ist|sind) (?:mir|uns) (?:\w+ )?(?:nicht bekannt|unbekannt)\b(?! kein)",
        rf"mir uns: (?:mir|uns) fehlen (?:\w+ ){{0,3}}{_DE_KNOWLEDGE}\b",
        r"das die fra: (?:frage|das|dies) (?:\w+ )?(?:lässt sich|kann)\b[^.;!?]{0,60} nicht (?:\w+ )?(?:beantworten|beantwortet werden|sagen|ermitteln|bestimmen|entnehmen)\b",
        # The sources.
        rf"{_GERMAN_SOURCE_HEADS}: {_DE_SOURCES}\b[^.;!?]{{0,60}} (?:enthält|enthalten|nennt|nennen|macht|machen|gibt|geben|liefert|liefern|bietet|bieten) [^.,;!?]{{0,40}}?\b{_DE_NO}\b",
        rf"{_GERMAN_SOURCE_HEADS}: {_DE_SOURCES}\b[^.;!?]{{0,60}} (?:beantwort|erwähn|nenn|behandel|enth)\w+ [^.,;!?]{{0,60}}\bnicht\b(?:[.!\[ ]|$)",
        rf"{_GERMAN_SOURCE_HEADS}: {_DE_SOURCES} (?:\w+ )?(?:dazu |hierzu |darüber )?nichts (?:dazu |darüber )?(?:sagen|sagt|enthalten|enthält)\b",
        rf"fin gib ist ste: (?:steht|stehen|findet sich|finden sich|ist|gibt es)\b[^.;!?]{{0,60}}{_DE_SOURCES}\b[^.;!?]{{0,40}} (?:nichts|{_DE_NO} (?:\w+ )?{_DE_KNOWLEDGE})\b",
        rf"{_GERMAN_SOURCE_HEADS}: {_DE_SOURCES} (?:steht|stehen|findet sich|finden sich|ist|gibt es|finde ich)\b[^.;!?]{{0,60}}? (?:nichts|{_DE_NO} (?:\w+ )?{_DE_KNOWLEDGE})\b",
        rf"fin gib: (?:gibt es|finden sich) (?:\w+ ){{0,2}}in (?:\w+ ){{0,3}}{_DE_SOURCES} (?:\w+ )?{_DE_NO}\b",
        rf"bie ent geb gib lie mac nen: (?:enthält|enthalten|nennt|nennen|gibt|geben|liefert|liefern|bietet|bieten|machen|macht) (?:\w+ ){{0,3}}{_DE_SOURCES} (?:\w+ ){{0,2}}{_DE_NO}\b",
        rf"geh las läs: (?:geht|gehen|lässt sich|lassen sich) aus (?:\w+ ){{0,3}}{_DE_SOURCES} (?:\w+ )?nicht (?:hervor|entnehmen|ableiten)\b",
        rf"fäl geh ist lie: (?:(?:liegt|fällt|ist) ausserhalb|geht über den (?:umfang|rahmen|inhalt)) (?:\w+ ){{0,3}}{_DE_SOURCES}\b",
        rf"{_GERMAN_SOURCE_HEADS}: (?:{_DE_SOURCES})[^.;!?]{{0,30}} (?:geht|gehen) [^.,;!?]{{0,30}}\bnicht hervor\b",
        rf"{_GERMAN_SOURCE_HEADS}: (?:{_DE_SOURCES})[^.;!?]{{0,60}} (?:wird|werden|ist|sind) [^.,;!?]{{0,60}}\bnicht (?:\w+ )?(?:erwähnt|genannt|angegeben|ersichtlich|enthalten|beschrieben|behandelt)\b",
        rf"ist sin wer wir: (?:wird|werden|ist|sind) [^.,;!?]{{0,40}}{_DE_SOURCES} (?:\w+ )?nicht (?:\w+ )?(?:erwähnt|genannt|angegeben|ersichtlich|enthalten|beschrieben|behandelt)\b",
        r"wur: wurden? (?:\w+ ){0,2}keine (?:\w+ )?(?:dokumente|informationen|ergebnisse|angaben|treffer) gefunden\b",
        rf"es: es gibt (?:\w+ )?(?:keine|keinerlei) (?:\w+ )?{_DE_KNOWLEDGE} (?:dazu|darüber|hierzu|zu|über|im|in)\b",
        rf"ste: steht (?:\w+ )?nicht (?:im|in) (?:\w+ ){{0,2}}{_DE_SOURCES}\b",
        r"rei: (?:reichen|reicht) (?:\w+ ){0,3}nicht aus, um\b",
        rf"kei: keine ausreichenden {_DE_KNOWLEDGE}\b",
        r"kön: (?:können|könnten) sie (?:\w+ ){0,3}(?:genauer |näher |präziser )?(?:formulieren|präzisieren)\b",
    ),
    r"(?:leider|(?:es )?tut mir (?:sehr )?leid|entschuldigung|vielen dank|danke|guten tag|hallo|ich habe|bedauere|nach durchsicht|als ki)",
    (
        rf"(?<!erwähnt )(?<!nennt )(?<!steht )(?<!beschreibt )\b(?:aber|jedoch|allerdings|dennoch|trotzdem|doch|wohl aber),? (?!{_DE_KEEPS})"
        r"|\b(?:stand 20\d\d|soweit ich weiss|meines wissens|nach meinem stand|im allgemeinen|in der regel)"
    ),
    r"\W*(?:wenn|falls|wer|sofern|obwohl|weil|da|sollten?|ohne)\b[^,]*$|.*(?:, (?:aber|obwohl|doch|jedoch|und)|;)",
    (
        r"\b(?:ausdrücklich|wörtlich|direkt|explizit|genau|mit (?:\w+ )?sicherheit|namentlich)\b[^.,;:!?]{0,60}[.;:] (?!(?:bitte|wenden|ich|wir|leider|dazu|hierzu|er|es|sie)\b)(?![^.;!?]{0,100}\b(?:nicht|kein\w*|nichts)\b)\w"
        r"|[.;,:] (?:aber |doch )?(?:im |in |aus |laut |nach )?(?:der |die |das |dem |den )?(?:zweite|dritte|andere|letzte|anhang|tabelle|fussnote)\w*\b(?! [^.;!?]{0,60}\b(?:nicht|kein\w*|nichts)\b)"
        r"|[.;:] (?:laut|gemäss|nach|aus|vermutlich|wahrscheinlich|vermutlich gilt)\b(?![^.;!?]{0,100}\b(?:nicht|kein\w*|nichts)\b)"
    ),
)

_NL_SOURCES: Final = (
    r"(?:context|documenten|document|documentatie|bronnen|bron|tekst(?:en)?|fragmenten|fragment|passages?|artikel(?:en)?|handleiding"
    r"|kennisbank|informatie|voorwaarden|zoekresultaten|materiaal)"
)
_NL_KNOWLEDGE: Final = r"(?:informatie|gegevens|antwoord|antwoorden|vermelding|details|aanwijzingen|toegang)"
_NL_KEEPS: Final = (
    rf"(?:(?:de|het|er|ze|die|deze) (?:\w+ )?(?:{_NL_SOURCES} )?)?(?:vermeld|noem|noemt|beschrijf|bevat|staat)\w*"
    r"|(?:ik|wij|u) (?:kan|kon|heb|weet|kunt|vind)|(?:kan|kon|heb) ik|u kunt|als u|neem|gerust|geen|niets|niet|helaas"
)
_DUTCH_SOURCE_HEADS: Final = "art bro con doc fra han inf ken mat pas tek voo zoe"
DUTCH: Final = Language(
    "nl",
    (
        "niet niets geen nergens buiten helaas onvoldoende ontbreekt ontbreken onduidelijk onbekend aangeven "
        "verduidelijken specificeren preciseren"
    ),
    (
        r"dat ik: (?:dat|ik) weet (?:ik |het |dat )?(?:helaas )?niet\b(?! (?:of|waarom))",
        r"^: (?:sorry,? )?geen idee\b",
        rf"ik we wij: (?:ik|wij|we) (?:heb|hebben|kan|kon|konden|vind|vinden|beschik)\b[^.;!?]{{0,60}}? (?:geen|niet over|onvoldoende) (?:\w+ )?{_NL_KNOWLEDGE}\b",
        rf"ik: ik geen (?:\w+ )?{_NL_KNOWLEDGE}\b",
        rf"heb kan kon vin: (?:heb|kan|kon|vind) ik\b[^.;!?]{{0,60}} (?:geen (?:\w+ )?{_NL_KNOWLEDGE}|niets)\b",
        r"kan kon kun: (?:kan|kunnen|kon) (?:ik|wij|we)\b[^.;!?]{0,60} niet (?:\w+ )?(?:beantwoorden|helpen|zeggen|vinden|bepalen)\b",
        r"ik we wij: (?:ik|wij|we) (?:kan|kunnen|kon)\b[^.;!?]{0,60} niet (?:\w+ )?(?:beantwoorden|helpen|zeggen|vinden|bepalen)\b",
        r"ik wij: (?:ik|wij) (?:kan|kunnen) (?:\w+ )?geen (?:\w+ )?(?:advies|antwoord|informatie) geven\b",
        r"kan kun: (?:kan|kunnen) (?:ik|wij) (?:\w+ )?geen (?:\w+ )?(?:advies|antwoord|informatie) geven\b",
        r"ik: ik (?:begrijp|snap) (?:de|uw|je) vraag niet\b",
        r"ik: ik ben (?:er )?niet zeker\b",
        r"ik we wij: (?:ik|wij|we) (?:heb|hebben|kon|konden|kan|kunnen)\b[^.;!?]{0,40} niets (?:\w+ )?(?:gevonden|vinden|kunnen vinden)\b",
        r"is zij: (?:is|zijn) (?:mij|ons) niet bekend\b",
        rf"aan ant det geg inf toe ver: {_NL_KNOWLEDGE} (?:ontbreekt|ontbreken)\b",
        # The sources.
        rf"{_DUTCH_SOURCE_HEADS}: {_NL_SOURCES} (?:\w+ ){{0,2}}(?:bevat|bevatten|noemt|noemen|geeft|geven|vermeldt|vermelden)\b[^.,;!?]{{0,30}} (?:geen|niet|niets)\b",
        rf"{_DUTCH_SOURCE_HEADS}: {_NL_SOURCES} (?:bevat|bevatten|noemt|noemen|geeft|geven|vermeldt|vermelden) (?:geen|niet|niets|onvoldoende)\b",
        rf"bev gee gev noe ver: (?:bevat|bevatten|geeft|geven|noemt|noemen|vermeldt|vermelden) (?:\w+ ){{0,3}}{_NL_SOURCES} (?:\w+ ){{0,2}}(?:geen|niet|niets)\b",
        rf"val: (?:valt|vallen) buiten [^.;!?]{{0,20}}{_NL_SOURCES}\b",
        rf"{_DUTCH_SOURCE_HEADS}: {_NL_SOURCES} (?:zegt|zeggen|vermelden|vermeldt) [^.,;!?]{{0,20}}\b(?:niets|niet)\b",
        rf"in: in (?:de|het|deze) (?:\w+ )?{_NL_SOURCES} (?:staat|staan|is|wordt|worden)\b[^.,;!?]{{0,40}}? (?:niet|niets|geen)\b",
        rf"ner: nergens in (?:de|het) (?:\w+ )?{_NL_SOURCES}\b",
        rf"is sta wor zij: (?:staat|is|wordt|worden|zijn) (?:niet|niets) (?:\w+ )?(?:in|over)[^.,;!?]{{0,20}}?(?: {_NL_SOURCES}|\w*)\b",
        r"inf: informatie is (?:\w+ )?niet (?:beschikbaar|opgenomen|gevonden|aanwezig|vermeld)\b",
        r"gee: geen (?:\w+ )?(?:informatie|documenten|resultaten|gegevens|antwoord) gevonden\b",
        rf"gee: geen van de (?:\w+ )?{_NL_SOURCES}\b",
        rf"er is zij: (?:er is|er zijn|is er|zijn er) (?:\w+ )?(?:geen|onvoldoende) (?:\w+ )?{_NL_KNOWLEDGE}\b",
        rf"{_DUTCH_SOURCE_HEADS}: {_NL_SOURCES} (?:valt|is) [^.,;!?]{{0,20}}\bniet (?:op te maken|af te leiden|duidelijk)\b",
        r"^: (?:dit|dat) wordt niet (?:genoemd|vermeld|besproken|beschreven)\b",
        r"^: (?:niet (?:vermeld|genoemd|gevonden|bekend|in de context)|geen (?:informatie|antwoord))\b[^.;!?]{0,40}(?:[.!]|$)",
        r"kan kun: (?:kunt|kun|kan) (?:u|je) (?:\w+ ){0,3}?(?:aangeven|verduidelijken|specificeren|preciseren)\b[^.!]{0,50}\?",
    ),
    r"(?:sorry|helaas|het spijt (?:me|ons)|bedankt|dank|excuses|hallo|goedendag|ik heb (?:\w+ )?(?:gezocht|bekeken|gekeken|de)|ik ben bang|als taalmodel|als ai)",
    (
        rf"(?<!vermeldt )(?<!noemt )(?<!staat )\b(?:maar|echter|toch|desondanks|hoewel|wel),? (?!{_NL_KEEPS})"
        r"|\b(?:voor zover ik weet|in het algemeen|over het algemeen)"
    ),
    r"\W*(?:als(?! (?:taalmodel|ai))|wanneer|indien|hoewel|omdat)\b[^,]*$|.*(?:, (?:maar|hoewel|en)|;|\bverklaarde)\b",
    (
        r"\b(?:uitdrukkelijk|letterlijk|rechtstreeks|expliciet|direct|precies|met (?:\w+ )?zekerheid)\b[^.,;:!?]{0,60}[.;:] (?!(?:neem|u|ik|wij|helaas|de|het|er|ze)\b)(?![^.;!?]{0,100}\b(?:niet|geen|niets)\b)\w"
        r"|[.;,:] (?:maar )?(?:in |uit |volgens )?(?:de |het )?(?:tweede|derde|andere|laatste|bijlage|tabel|voetnoot)\b(?![^.;!?]{0,60}\b(?:niet|geen|niets)\b)"
        r"|[.;:] (?:volgens|uit|waarschijnlijk|vermoedelijk|wel staat er:)(?![^.;!?]{0,100}\b(?:niet|geen|niets)\b)"
    ),
)

_JA_SOURCES: Final = r"(?:資料|文書|文章|コンテキスト|文脈|情報源|本文|マニュアル|検索結果|参考文献|ナレッジベース|規約|テキスト|ドキュメント|情報)"
_JA_NO: Final = r"(?:ません|ございません|ありません|ない(?:です|ため|ので|よう)?|なかった)"
JAPANESE: Final = Language(
    "ja",
    "ませ ない 不明 該当なし 困難 かね なし 範囲外 対象外 不足 不可 控え",
    (
        r"^(?:すみません|ごめんなさい|申し訳(?:ありません|ございません)(?:が)?)?[,、。]?(?:それは|その件は|答えが|答えは)?(?:私には)?(?:よく)?(?:分か|わか)(?:りません|らない(?:です)?)[。!]?",
        r"存じ(?:上げ)?ません|(?:分か|わか)りかねます|把握して(?:い|おり)ません|回答(?:を|は)(?:差し)?控え",
        r"^(?:不明(?:です)?|該当なし|情報なし|記載なし|回答不可)[。.!]*$",
        r"(?:回答|お答え|返答|答え(?:る)?(?:こと(?:が|は))?|判断|特定|お手伝い|応じること|ご案内)(?:する(?:こと(?:が|は))?)?(?:は|が|に|を提供する(?:こと(?:が|は)))?(?:でき(?:ません|ない)|(?:いたし|致し|し)かね(?:ます|る))",
        r"(?:お答え|回答)できる情報(?:は|が)(?:ありません|ございません)",
        r"(?:回答|答え)[^。]{0,12}困難です",
        rf"{_JA_SOURCES}[^。]{{0,50}}(?:見つかり|見つけられ|見当たり|確認でき|含まれ(?:て(?:い)?)?|記載され(?:て(?:い)?)?|書かれ(?:て(?:い)?)?|言及され(?:て(?:い)?)?|触れられ(?:て(?:い)?)?|登録され(?:て(?:い)?)?|示され(?:て(?:い)?)?|説明され(?:て(?:い)?)?|掲載され(?:て(?:い)?)?|述べられ(?:て(?:い)?)?)(?:ません|ない)",
        r"(?:記載|記述|情報|言及|説明|回答|答え)(?:は|が)?[^。]{0,12}(?:見つかりません|見当たりません|(?<!ことは)ありません|ございません|ない(?:です|ため|よう)|含まれて(?:い)?ません|存在しません)",
        rf"{_JA_SOURCES}(?:から|だけで|のみで|で)は?[^。]{{0,40}}(?:分かり|わかり|判断でき|特定でき|答えられ|回答でき)(?:ません|ない)",
        r"(?:情報|データ|知識)(?:は|を)?(?:持ってい?|持っており|有してい?|持ち合わせてい?)(?:ません|ない)",
        r"^(?:その|該当する|関連する)情報(?:は|が)[^。]{0,8}(?:提供|公開|収録)されていません",
        rf"{_JA_SOURCES}の(?:対象|範囲)外",
        r"情報が(?:不足|足り(?:ません|ない))",
        r"(?:注文|個人|アカウント|データ|情報)[^。]{0,20}アクセス(?:することは|することが)?できません",
    ),
    r"(?:申し訳|すみません|恐れ入り|残念|ありがとう|お問い合わせ|ご質問|確認|検索|お調べ|調べ|ai|人工知能|どの|どちら|何の)",
    (
        r"^[^。]{0,12}?(?:が|けれども|けれど|けど|ものの)[,、]|(?:ただし|しかし|一方|とはいえ|なお)[,、]?(?![^。]{0,60}(?:述べ|記載|言及|書かれ|触れ|お問い合わせ|ご確認|ください))"
        r"|(?:一般的に|通常)は?[,、]"
    ),
    r".*(?:。|(?:が|けれど|けど|ものの)[,、]|場合|なら)",
    r"。(?:しかし|一方)?[、,]?(?:二|三|第二|第三|別|他|もう一つ|次)[^。]{0,12}(?:によると|によれば|には|では|に)(?![^。]{0,60}(?:ません|ない))|、(?:表|付録|注)(?:に|で)(?:よると|よれば|は)",
    is_spaced=False,
)

_ZH_SOURCES: Final = r"(?:资料|資料|文档|文檔|文件|上下文|知识库|知識庫|文本|文中|段落|片段|来源|來源|手册|手冊|信息|資訊|检索结果|檢索結果|内容|材料|文章)"
_ZH_KEEPS: Final = r"(?:我?(?:无法|不能|没有|没|可以帮)|提到|提及|说明了|資料|资料|文中|文档|上下文|建议|您可以(?:查|联系|咨询)|如果您|请)"
CHINESE: Final = Language(
    "zh",
    "没 沒 无 無 不 未 超出 缺",
    (
        r"^(?:抱歉|对不起|不好意思|很抱歉|對不起)?[,。]?我(?:也|真的|并)?不(?:知道|清楚|了解|确定)(?!有|比)[。!,]?",
        r"^(?:不清楚|不知道|不详|不詳|未知|无法回答|無法回答|没有答案|无相关信息|资料不详|暂无相关信息)[。!]*$",
        r"(?:我|暂时|目前)?(?:无法|無法|不能|没办法|没法)(?:根据[^。]{0,20})?(?:回答|作答|确定|確定|判断|判斷|得知|提供[^。,]{0,8}(?:信息|答案|意见|建议|資訊)|帮助|访问您|給出|给出)",
        r"(?:从|根据|根據|在)[^。]{0,20}(?:无法|無法|不能|没有|沒有|未能|找不到|没)[^。,]{0,6}(?:确定|確定|找到|判断|得知|得出|得到|发现|获取)",
        r"(?:我)?(?:没有|沒有|没|未|并未)(?:能)?(?:找到|发现|發現|检索到|查到|搜索到)[^。,]{0,20}(?:信息|资料|資料|答案|内容|说明|相关|記載|资讯)",
        r"我(?:也|目前|暂时)?(?:没有|沒有)[^。,]{0,16}(?:信息|资料|資料|数据|資訊|答案)",
        r"(?:暂无|没有|沒有|无|無)相?[关關]?(?:于[^。,]{0,12})?的?(?:信息|资料|資料|資訊|内容|记录|说明)",
        rf"{_ZH_SOURCES}[^。]{{0,16}}(?:没有|沒有|没|未|并未|並未|均未|都没有|不)[^。,]{{0,8}}(?:提到|提及|说明|說明|包含|包括|涉及|回答|给出|給出|记载|記載|提供|注明|指出|讨论|关于|列出|相关)",
        r"(?:没有|沒有|缺乏|缺少)足够的?(?:信息|资料|資料|資訊|依据)",
        r"(?:信息|资料|資訊|資料)(?:不足|不够|不充分)",
        r"(?:信息|资料|資料|答案|内容)(?:并)?(?:未|没有|沒有)(?:在[^。,]{0,10})(?:出现|提到|提及|找到|列出)",
        rf"{_ZH_SOURCES}里?[^。]{{0,10}}(?:没有|沒有|没|未)(?:写|讲|说|介绍|作出|作说明|明确)",
        r"(?:不得而知|无从得知|查不到|没有头绪)",
        r"答案(?:并)?(?:不在|没有在|未在)",
        r"找不到(?:相关|答案|有关|任何)[^。,]{0,10}",
        r"我(?:回答|答)不了|(?:这|這)个?(?:问题|問題)我?(?:回答|答)不了|帮(?:助)?不了(?:您|你)",
        rf"超出了?[^。,]{{0,10}}{_ZH_SOURCES}",
        r"恐怕(?:我)?(?:没有|无法|不能|不知道)",
    ),
    r"(?:抱歉|很抱歉|对不起|對不起|不好意思|感谢|谢谢|很遗憾|遗憾|您好|你好|我(?:已)?(?:查看|查阅|检索|搜索)|请问|作为|根据|目前)",
    rf"(?:不过|不過|然而|但)(?!是?,?{_ZH_KEEPS})|(?:一般来说|通常|据我所知|截至)",
    r".*(?:。|!|\?|,但|如果|若|,不过|[说表]示?(?:他|她|自己|,))",
    r"[;;。,,](?:但)?(?:第二|第三|另一|其他|附录|表格|根据(?:表格|附录|第)|只写明|仅写明)(?![^。;;]{0,40}(?:没有|未|无法|不))",
    is_spaced=False,
)

_KO_SOURCES: Final = (
    r"(?:문서|자료|문맥|본문|컨텍스트|지식 ?베이스|설명서|약관|단락|검색 ?결과|글|정보|내용|텍스트|출처|참고)"
)
_KO_NONE: Final = r"(?:없습니다|없어요|없음|없었습니다|없네요|없는 것 같)"
KOREAN: Final = Language(
    "ko",
    "없 않 못 모르 모릅 모름 불명 어렵 부족 범위 주시 주세",
    (
        r"^(?:죄송(?:합니다만|합니다|하지만|해요)|미안(?:합니다|하지만))?[.,!]? ?(?:저는 |저도 |답을 |답은 )?(?:잘 )?(?:모르(?:겠습니다|겠어요|겠네요)|모릅니다)[.!]?$",
        r"^(?:정?답(?:을|은) )?(?:알 수 없(?:음|습니다)|해당 ?없음|정보 ?없음|모름|불명)[.!]*$",
        r"(?:답변|대답|답|도와|도움)[^.]{0,12}(?:드릴|할|줄|을 드릴) 수(?:가|는)? ?없(?:습니다|어요)",
        r"(?:답변|대답|답)(?:하기|드리기)(?:가|는)? ?어렵(?:습니다|네요)",
        rf"{_KO_SOURCES}[^.]{{0,50}} (?:찾을|확인할|알|판단할|답할) 수(?:가|는)? ?없(?:습니다|어요|었습니다)",
        rf"{_KO_SOURCES}[^.]{{0,50}}(?:찾지|발견하지|확인하지) 못(?:했습니다|했어요|하였습니다)",
        rf"(?:언급|정보|기록|설명|내용|기재|답변|답|자료)(?:이|가|은|는|도)? ?(?:전혀 )?{_KO_NONE}",
        rf"{_KO_SOURCES}[^.]{{0,50}}(?:언급되|명시되|나와|포함되|기재되|나타나|적혀|표시되|소개되|언급하고|다루고)(?:어|지)? ?(?:있지)? ?않(?:습니다|아요|았습니다|네요)",
        r"(?:정보|자료|데이터)(?:를|을|는|은)? ?(?:가지고|갖고|보유하고) 있지 않(?:습니다|아요)",
        r"^(?:이를 |현재 )?(?:확인|답변|판단|제공)할 수 없(?:습니다|어요)[.!]*$",
        r"(?:아무것도|아무 정보도|내용을|정보를|답을) (?:찾지|확인하지) 못(?:했|하였)습니다",
        r"(?:답변|답|정보|설명)(?:은|는|이|가) (?:문서|자료|본문|문맥|출처)에(?:는)? 없습니다",
        r"(?:문서|자료|본문|문맥|출처|설명서)[^.]{0,40}(?:나오지|담겨 있지|확인되지|다루지|언급하지) 않(?:습니다|아요)",
        r"(?:제가|저는|저도|부분은) [^.]{0,12}알지 못(?:합니다|해요)",
        r"아는 바가? 없(?:습니다|어요)",
        r"(?:문서|자료|지식 ?베이스|정보)의? ?(?:범위를 벗어|범위 밖)",
        r"(?:정보|자료|문맥)(?:이|가)? ?(?:부족|충분하지 않)",
        r"(?:어떤|무슨|어느) [^.?]{0,15}(?:알려|말씀해) 주(?:시겠어요|시겠습니까|세요)",
        r"(?:내역|계정|데이터|개인 ?정보)[^.]{0,12} 접근할 수 없(?:습니다|어요)",
        r"(?:자문|조언|의견|정보|답)(?:을|를)? 제공할 수 없(?:습니다|어요)",
    ),
    r"(?:죄송|미안|아쉽게도|유감|문의|감사|안타깝|설명서를 확인|확인했지만|어떤|인공지능|질문)",
    r"(?:하지만|그러나|다만|그렇지만|그래도),? ?(?![^.]{0,60}(?:나와 있|언급|적혀|명시|문의|확인해|바랍니다|주세요))|(?:일반적으로|보통|기준)",
    r".*(?:[.!?] |지만|으나|으면|경우)",
    r"[.,;] (?:다만 |하지만 )?(?:두 번째|세 번째|다른|표에|부록|각주|사실 자체)(?![^.]{0,60}(?:없|않|못))",
    is_spaced=False,
)


_FR_SOURCES: Final = (
    r"(?:contexte|documents?|documentation|sources?|textes?|extraits?|passages?|articles?|manuel|base de connaissances|fiches|informations?"
    r"|éléments|résultats de (?:la )?recherche)"
)
_FR_KNOWLEDGE: Final = r"(?:d'|de |l'|la |les |une? |aucune? |cette |ces |des |les )?(?:informations?|indications?|réponses?|données?|précisions?|mentions?|détails?|éléments?|références?)"
_FR_MENTION: Final = r"(?:mentionne|précise|indique|donne|contien|fourni|permet|traite|répond|parle|évoque|spécifie|dise|dit|figure|aborde|compren|inclu|offre)\w*"
_FR_KEEPS: Final = (
    rf"(?:il|elle|ils|elles|(?:le|les|la) (?:\w+ )?{_FR_SOURCES}) (?:\w+ )?(?:mentionn|indiqu|précis|évoqu|parl|contien|décri|trait|abord)\w*"
    r"|je (?:ne|n'|peux vous (?:aider|proposer)|vous (?:invite|conseille|recommande)|suis)|j'ai rien|vous pouvez (?:consulter|contacter|vérifier|vous)"
    r"|si vous|n'hésitez|veuillez|aucun|rien|malheureusement"
)
_FRENCH_SOURCE_HEADS: Final = "art bas con doc ext fic inf man pas rés sou tex élé"
FRENCH: Final = Language(
    "fr",
    (
        "pas peux puis saurais clarifier aucun aucune rien ignore impossible préciser reformuler non crains absente absent absents "
        "absentes introuvable introuvables cadre champ malheureusement"
    ),
    (
        r"je: je ne (?:le )?sais pas\b(?! (?:pourquoi|si))",
        r"je: je l'ignore\b",
        rf"je: je (?:n'ai|ne dispose|ne possède|ne trouve|ne vois) (?:malheureusement )?(?:pas|rien|(?:d')?aucune?)\b[^.;!?]{{0,30}}?(?:{_FR_KNOWLEDGE}|accès|\btrouvé|connaissance|\bidée)",
        r"il: il (?:ne )?m'est (?:malheureusement )?impossible de\b",
        rf"est son: (?:est|sont) (?:absente?s?|introuvables?) d(?:es?|u|ans)\b[^.;!?]{{0,20}}{_FR_SOURCES}\b",
        r"je: je n'ai (?:malheureusement )?(?:rien|pas pu) (?:trouv|répond|déterminer)\w*",
        r"je: je ne (?:peux|puis|saurais) (?:malheureusement )?(?:pas )?(?:vous )?(?:\w+ )?(?:répondre|aider|dire|donner|fournir|confirmer|déterminer)\b",
        r"je: je ne suis (?:malheureusement )?pas (?:en mesure|certaine?|sûre?|capable)\b",
        r"je: je crains de ne pas\b",
        r"je: je ne comprends pas\b",
        # The sources.
        rf"{_FRENCH_SOURCE_HEADS}: {_FR_SOURCES}\b[^.;!?]{{0,40}} (?:ne |n')(?:\w+ )?{_FR_MENTION} (?:\w+ )?(?:pas|aucune?|rien)\b",
        rf"{_FRENCH_SOURCE_HEADS}: {_FR_SOURCES} n'en (?:parle|dit|disent|parlent) (?:\w+ )?(?:pas|rien)\b",
        rf"dép est ne: (?:dépasse le cadre|est hors du (?:cadre|champ)|ne relève pas) (?:de |des |du )[^.;!?]{{0,10}}{_FR_SOURCES}\b",
        rf"rie: rien dans (?:les|le|la|ces) (?:\w+ )?{_FR_SOURCES}\b",
        rf"auc: aucune? (?:des |de ces |du )(?:\w+ )?{_FR_SOURCES} (?:\w+ )?(?:ne |n')",
        rf"auc: aucune (?:information|indication|donnée|réponse|mention|précision)\b[^.;!?]{{0,60}}(?:{_FR_SOURCES}|disponible|trouvée|fournie)",
        r"auc: aucune? (?:document|résultat|source|passage)s? (?:\w+ )?n'(?:a été trouvé|a été récupéré|est disponible)\w*",
        r"il: il n'(?:y a|existe|est fait) (?:pas|aucune?) (?:d'|de )?(?:informations?|indications?|mentions?|données|précisions?|réponses?|références?)\b",
        rf"n ne: (?:n'est|ne sont|n'apparaît|ne figure|ne se trouve|n'a) pas [^.,;!?]{{0,30}}(?:dans|par|à partir d)[^.,;!?]{{0,20}}{_FR_SOURCES}\b",
        r"dat inf nom poi que rép: (?:information|réponse|question|point|date|nom)s? (?:n'est|ne sont) pas (?:mentionn|précis|indiqu|disponible|spécifi|fourni|abord)\w*",
        r"^: (?:cela|ce|ceci) n'est pas (?:mentionn|précis|indiqu|spécifi)\w*",
        r"imp: impossible de (?:répondre|le dire|déterminer|le déterminer|trouver)\b",
        r"il: il n'est pas possible de (?:répondre|le dire|déterminer)\b",
        r"^: (?:non (?:précisé|mentionné|indiqué|spécifié|disponible)|pas (?:d'information|de réponse|mentionné|précisé))e?s?\b[^.;!?]{0,50}(?:[.!]|$)",
        r"^: (?:aucune (?:information|réponse)(?: (?:sur|concernant|disponible|trouvée|à ce)\b[^.;!?]{0,50})?)(?:[.!]|$)",
        r"pou: (?:pourriez|pouvez)[- ]vous (?:\w+ )?(?:préciser|reformuler|clarifier)\b",
    ),
    r"(?:désolée?|je suis (?:\w+ )?désolée?|malheureusement|bonjour|merci|excusez|après|j'ai (?:consulté|cherché|vérifié)|en tant qu'ia)",
    (
        rf"(?<!indique )(?<!mentionne )(?<!précise )\b(?:mais|cependant|toutefois|néanmoins|en revanche|pourtant),? (?!{_FR_KEEPS})"
        r"|\b(?:en général|à ma connaissance|selon (?!les|le)|en 20\d\d,)"
    ),
    r"\W*(?:si|lorsque|quand|bien que|comme|parce que)\b[^,]*$|.*(?:, (?:mais|bien que|et)|;|\bdéclaré|\bdit que)\b",
    (
        r"\b(?:explicitement|directement|mot pour mot|littéralement|exacte?s?|précisément|avec (?:\w+ )?certitude)\b[^.,;:!?]{0,60}? ?[.;:] (?!(?:je|il|elle|ils|elles|vous|veuillez|n'hésitez|malheureusement|le|la|les)\b)(?![^.;!?]{0,100}\b(?:pas|aucune?|rien)\b)\w"
        r"|[.;,:] (?:mais )?(?:dans |selon |d'après )?(?:le |la |les |l'|une? )?(?:second|deuxième|troisième|autre|dernier|annexe|tableau|note)\w*\b(?![^.;!?]{0,60}\b(?:pas|aucune?|rien)\b)"
        r"| ?[.;:] (?:d'après|selon|on peut en (?:déduire|conclure)|il en (?:ressort|découle)|probablement)\b(?![^.;!?]{0,100}\b(?:pas|aucune?|rien)\b)"
    ),
)

_ES_SOURCES: Final = (
    r"(?:contexto|documentos?|documentación|fuentes?|textos?|fragmentos?|pasajes?|artículos?|manual|base de conocimientos?|informaci[oó]n"
    r"|condiciones generales|resultados de (?:la )?búsqueda|materiales)"
)
_ES_KNOWLEDGE: Final = (
    r"(?:informaci[oó]n|datos|detalles|respuestas?|menci[oó]n|referencias?|indicaci[oó]n(?:es)?|registros?)"
)
_ES_MENTION: Final = r"(?:mencion|especific|indic|conten|contien|inclu|proporcion|dice|dan?\b|ofrec|respond|habl|trat|aclar|explic|detall|señal)\w*"
_ES_KEEPS: Final = (
    rf"(?:(?:el|la|los|las|ellos|se) (?:\w+ )?(?:{_ES_SOURCES} )?)?(?:mencion|indic|habl|trat|describ|contien|señal)\w*"
    r"|no (?:puedo|he|encontr|tengo|dispongo|pude|s[eé])|puedo (?:ayudar|ofrecer)|puede (?:consultar|contactar|comprobar|revisar|ponerse)"
    r"|si (?:me|puede|quiere|desea)|por favor|le (?:recomiendo|sugiero)|ning|nada|lamentablemente"
)
_SPANISH_SOURCE_HEADS: Final = "art bas con doc fra fue inf man mat pas res tex"
SPANISH: Final = Language(
    "es",
    ("no ninguno ninguna ningún nada fuera desconozco falta faltan carezco sin podría podrías puede puedes imposible"),
    (
        r"no yo: (?:yo )?no (?:lo )?(?:sé|se lo puedo decir|sabría)\b",
        r"des: desconozco\b",
        rf"no: no (?:he (?:encontrado|podido encontrar)|encontré|encuentro|pude encontrar|pude hallar|hallé|veo)\b[^.;!?]{{0,40}}?(?:{_ES_KNOWLEDGE}|\bnada|\beso|\besto|{_ES_SOURCES})",
        rf"no: no (?:tengo|dispongo de|cuento con|poseo) (?:\w+ ){{0,2}}(?:{_ES_KNOWLEDGE}|acceso|conocimiento|constancia|idea)\b",
        r"no: no me (?:es posible|consta)\b",
        r"no: (?:no (?:logro|logré|he logrado|consigo|conseguí) (?:encontrar|hallar|localizar)|no (?:localicé|localizo))\b",
        rf"dat det ind inf men ref reg res: {_ES_KNOWLEDGE} no (?:aparece|figura|consta|se encuentra|está|se incluye)n?\b[^.,;!?]{{0,40}}(?:{_ES_SOURCES}|disponible)",
        rf"car fal: (?:falta|faltan|carezco de) (?:\w+ )?{_ES_KNOWLEDGE}\b",
        r"no: no (?:puedo|podemos|podría) (?:\w+ )?(?:responder|contestar|ayudar|confirmar|determinar|decir|dar|proporcionar|ofrecer)\w*",
        r"no: no (?:estoy segur|entiendo la pregunta|comprendo)\w*",
        # The sources.
        rf"{_SPANISH_SOURCE_HEADS}: {_ES_SOURCES}\b[^.;!?]{{0,40}} no (?:\w+ )?{_ES_MENTION}",
        rf"nin: ningun[oa] de (?:los|las|estos|estas) (?:\w+ )?{_ES_SOURCES}\b",
        rf"no: no (?:hay|existe|existen|aparece|aparecen|figura|consta|se encontró|se encuentra) (?:(?:\w+ ){{0,2}}?{_ES_KNOWLEDGE}(?! móvil| de (?:pago|contacto))|nada (?:sobre|en|acerca|al respecto|relacionado))\b",
        rf"no: no (?:consta|aparece|figura|se encuentra|está|se menciona|se indica|se especifica)\b[^.,;!?]{{0,30}} en (?:el|la|los|las|este|estos) (?:\w+ )?{_ES_SOURCES}\b",
        rf"no: no se (?:menciona|especifica|indica|trata|habla|proporciona)n?\b[^.;!?]{{0,30}}(?:{_ES_SOURCES}|[.!]|$)",
        rf"fue: fuera del (?:alcance|ámbito)[^.;!?]{{0,15}} {_ES_SOURCES}\b",
        rf"{_SPANISH_SOURCE_HEADS}: {_ES_SOURCES}\b[^.;!?]{{0,60}}\bno es posible (?:determinar|saber|responder|establecer)\b",
        r"no: no es posible (?:determinar|saber|responder)(?:lo)?\b[^.;!?]{0,40}(?:con|a partir|según|en base)",
        r"no: no es suficiente para (?:responder|contestar)\w*",
        r"^: (?:no (?:mencionado|especificado|disponible|encontrado)|sin (?:información|datos|respuesta)|ninguna (?:información|respuesta))\b[^.;!?]{0,30}(?:[.!]|$)",
        r"pod pue: (?:podría|podrías|puede|puedes) (?:\w+ )?(?:indicar|aclarar|especificar|precisar|reformular|concretar)\w*\b[^.!]{0,50}\?",
    ),
    r"(?:lo siento|lamento|siento|lamentablemente|desafortunadamente|perdón|disculp|gracias|hola|he (?:revisado|consultado|buscado)|me temo|aunque (?:he )?(?:revis|consult|busq)|como modelo|como ia|¿podría)",
    (
        rf"\b(?:pero|sin embargo|no obstante|aunque|ahora bien|en cambio|sino),? (?!{_ES_KEEPS})"
        r"|\b(?:en general|hasta donde sé|según (?!el|la|los)|en 20\d\d,? )"
    ),
    r"\W*(?:si|cuando|aunque|como|porque)\b[^,]*$|.*(?:, (?:pero|aunque|y)|;|\bdeclaró|\bdijo)\b",
    (
        r"\b(?:explícitamente|directamente|literalmente|textualmente|exacta|exacto|con (?:\w+ )?certeza)\b[^.,;:!?]{0,60}[.;:] (?!(?:puede|por favor|el|la|los|las|lamentablemente)\b)(?![^.;!?]{0,100}\b(?:no|ningun[oa]?|nada)\b)\w"
        r"|[.;,:] (?:pero )?(?:en |según )?(?:el |la |los )?(?:segund[oa]|tercer[oa]?|otr[oa]|últim[oa]|anexo|tabla|nota)\b(?![^.;!?]{0,60}\b(?:no|ningun[oa]?|nada)\b)"
        r"|[.;:] (?:según|de [^.;:!?]{0,30} se deduce|se deduce|probablemente|sí)\b(?![^.;!?]{0,100}\b(?:no|ningun[oa]?|nada)\b)"
    ),
)

_PT_SOURCES: Final = (
    r"(?:contexto|documentos?|documentação|fontes?|textos?|trechos?|passagens|passagem|artigos?|manual|base de conhecimentos?"
    r"|informaç(?:ão|ões)|termos gerais|resultados da (?:pesquisa|busca)|materia(?:l|is)|excertos?)"
)
_PT_KNOWLEDGE: Final = r"(?:informaç(?:ão|ões)|dados|detalhes|respostas?|menç(?:ão|ões)|referências?|indicaç(?:ão|ões)|registros?|registos?)"
_PT_MENTION: Final = r"(?:mencion|especific|indic|cont[ée]m|contêm|inclu|fornec|diz|dizem|fala|trat|respond|esclarec|explic|detalh|inform|apresent|abord)\w*"
_PT_KEEPS: Final = (
    rf"(?:(?:o|a|os|as|ele|ela) (?:\w+ )?(?:{_PT_SOURCES} )?)?(?:mencion|indic|fala|trata|descrev|cont[ée]m)\w*"
    r"|não (?:posso|encontr|tenho|consig|foi possível|sei|h[áa])|posso ajudar|(?:você )?pode (?:consultar|contactar|contatar|verificar)"
    r"|se (?:me|puder|quiser|você)|por favor|recomendo|sugiro|nenhum|nada|infelizmente"
)
_PORTUGUESE_SOURCE_HEADS: Final = "art bas con doc exc fon inf man mat pas res ter tex tre"
PORTUGUESE: Final = Language(
    "pt",
    "não nao nenhum nenhuma nada falta faltam fora desconheço impossível poderia pode receio sem",
    (
        r"eu não: (?:eu )?não (?:o )?sei\b(?! se)",
        r"des: desconheço\b",
        rf"não: não (?:encontrei|achei|localizei|consegui (?:encontrar|localizar)|consigo (?:encontrar|localizar)|vejo)\b[^.;!?]{{0,40}}?(?:{_PT_KNOWLEDGE}|\bnada|\bisso|\bisto|{_PT_SOURCES})",
        rf"não: não (?:tenho|disponho de|possuo|ter) (?:\w+ ){{0,2}}(?:{_PT_KNOWLEDGE}|acesso|conhecimento|ideia)\b",
        r"não: não me é possível\b",
        rf"dad det ind inf men ref reg res: {_PT_KNOWLEDGE} não (?:aparece|figura|consta|se encontra|está|foi|é)m?\b[^.,;!?]{{0,40}}(?:{_PT_SOURCES}|disponível|encontrada)",
        rf"fal: (?:falta|faltam) (?:\w+ )?{_PT_KNOWLEDGE}\b",
        r"não: não (?:posso|podemos|consigo|conseguimos|poderia) (?:\w+ )?(?:responder|ajudar|confirmar|determinar|dizer|dar|fornecer|oferecer)\w*",
        r"não: não (?:tenho certeza|entendi|compreendi|compreendo)\b",
        rf"não: não foi possível (?:encontrar|localizar|determinar|responder)\w*[^.;!?]{{0,30}}(?:{_PT_KNOWLEDGE}|{_PT_SOURCES}|pergunta|[.!]|$)",
        # The sources.
        rf"{_PORTUGUESE_SOURCE_HEADS}: {_PT_SOURCES}\b[^.;!?]{{0,40}} não (?:\w+ )?{_PT_MENTION}",
        rf"{_PORTUGUESE_SOURCE_HEADS}: {_PT_SOURCES}\b[^.;!?]{{0,40}} não (?:é|são) suficientes?\b",
        rf"nen: nenhum(?:a)? d(?:os|as|estes|estas) (?:\w+ )?{_PT_SOURCES}\b",
        r"nad: nada (?:\w+ )?(?:consta|encontrei|foi encontrado|há)\b",
        rf"não: não (?:há|existem?|consta|constam|foram encontrad[ao]s|foi encontrad[ao]) (?:(?:\w+ ){{0,2}}?{_PT_KNOWLEDGE}|nada (?:sobre|n[oa]s?|acerca|a respeito|relacionado))\b",
        rf"não: não (?:consta|aparece|está|se encontra|é mencionad[ao]|foi mencionad[ao])\b[^.,;!?]{{0,30}}\b(?:n[oa]s?|em|neste|nestes) (?:\w+ )?{_PT_SOURCES}\b",
        r"^: (?:isso|isto|essa informação|a informação) não (?:é|foi|está) (?:mencionad|especificad|indicad|disponível)\w*",
        rf"for: fora do (?:âmbito|escopo|alcance)[^.;!?]{{0,15}} {_PT_SOURCES}\b",
        rf"não: não (?:é|são|foi|foram|está|estão) (?:\w+ )?(?:indicad|mencionad|especificad|informad|citad|descrit|abordad)[oa]s?\b[^.,;!?]{{0,20}} (?:n[oa]s?|em) (?:\w+ )?{_PT_SOURCES}\b",
        rf"{_PORTUGUESE_SOURCE_HEADS}: {_PT_SOURCES}\b[^.;!?]{{0,60}}\bnão é possível (?:determinar|saber|responder|estabelecer)\b",
        r"não: não é possível (?:determinar|saber|responder)\b[^.;!?]{0,40}(?:com|a partir|base)",
        r"^: (?:não (?:mencionado|especificado|disponível|encontrado|informado)|sem (?:informação|informações|resposta)|nenhuma (?:informação|resposta))\b[^.;!?]{0,30}(?:[.!]|$)",
        r"pod: (?:poderia|pode) (?:\w+ )?(?:esclarecer|indicar|especificar|precisar|reformular)\b[^.!]{0,50}\?",
    ),
    r"(?:desculp|lament|sinto|infelizmente|obrigad|olá|consultei|procurei|verifiquei|receio|como modelo|como ia|peço desculpa)",
    (
        rf"\b(?:mas|no entanto|contudo|porém|todavia|entretanto|embora),? (?!{_PT_KEEPS})"
        r"|\b(?:em geral|que eu saiba|segundo (?!o|a)|em 20\d\d,? )"
    ),
    r"\W*(?:se|quando|embora|como|porque|caso)\b[^,]*$|.*(?:, (?:mas|embora|e)|;|\bdeclarou|\bdisse)\b",
    (
        r"\b(?:explicitamente|diretamente|directamente|literalmente|textualmente|exat[oa]|com (?:\w+ )?certeza)\b[^.,;:!?]{0,60}[.;:] (?!(?:pode|por favor|o|a|os|as|infelizmente)\b)(?![^.;!?]{0,100}\b(?:não|nenhuma?|nada)\b)\w"
        r"|[.;,:] (?:mas )?(?:n[oa] |segundo )?(?:o |a |os )?(?:segund[oa]|terceir[oa]|outr[oa]|últim[oa]|anexo|tabela|nota)\b(?![^.;!?]{0,60}\b(?:não|nenhuma?|nada)\b)"
        r"|[.;:] (?:segundo|da? [^.;:!?]{0,30} (?:conclui|deduz)-se|provavelmente)\b(?![^.;!?]{0,100}\b(?:não|nenhuma?|nada)\b)"
    ),
)

_IT_SOURCES: Final = (
    r"(?:contesto|documenti|documento|documentazione|fonti|fonte|testo|testi|brani|brano|passaggi|passaggio|estratti|articol[oi]|manuale"
    r"|base di conoscenza|informazioni|condizioni generali|risultati della ricerca|materiali?)"
)
_IT_KNOWLEDGE: Final = r"(?:informazion[ei]|dati|dettagli|rispost[ae]|menzion[ei]|riferiment[oi]|indicazion[ei]|(?:nulla|niente) (?:su\w*|ne\w*|in|al riguardo|a riguardo))"
_IT_MENTION: Final = (
    r"(?:menzion|specific|indic|conten|contien|inclu|fornis|dic|parl|rispond|tratt|chiar|spieg|riport|precis|offr)\w*"
)
_IT_KEEPS: Final = (
    rf"(?:(?:il|la|i|le|esso|si) (?:\w+ )?(?:{_IT_SOURCES} )?)?(?:menzion|indic|parl|tratt|descriv|contien)\w*"
    r"|non (?:posso|ho|sono|trov|riesco|so|c'è|dispon)|posso (?:aiutar|offrir)|può (?:consultare|contattare|verificare|controllare)|se (?:può|vuole|mi)"
    r"|per favore|le (?:consiglio|suggerisco)|nessun|nulla|niente|purtroppo"
)
_ITALIAN_SOURCE_HEADS: Final = "art bas bra con doc est fon inf man mat pas ris tes"
ITALIAN: Final = Language(
    "it",
    ("non nessun nessuno nessuna nulla esula oltre fuori manca mancano può potrebbe impossibile informazione"),
    (
        r"non: non (?:lo so|saprei|ne so nulla)\b",
        rf"non: non (?:ho (?:trovato|potuto trovare)|trovo|vedo|sono riuscit[oa] a trovare|riesco a trovare)\b[^.;!?]{{0,30}}?(?:{_IT_KNOWLEDGE}|{_IT_SOURCES})",
        rf"non: non (?:ho|dispongo di|possiedo|avere) (?:\w+ ){{0,2}}(?:{_IT_KNOWLEDGE}|accesso)\b",
        r"non: non (?:posso|possiamo|potrei|riesco a|sono in grado di) (?:\w+ )?(?:rispond|aiutar|conferm|determin|dir|fornir|dar|offr|stabil)\w*",
        r"non: non (?:sono sicur|sono a conoscenza|capisco|ho capito)\w*",
        r"non: non (?:mi|ci) è possibile\b",
        rf"dat det ind inf men nie nul rif ris: {_IT_KNOWLEDGE} non (?:compare|appare|figura|risulta|si trova|è riportat[oa])\w*\b[^.,;!?]{{0,40}}{_IT_SOURCES}",
        rf"man: (?:manca|mancano) (?:\w+ )?{_IT_KNOWLEDGE}\b",
        # The sources.
        rf"{_ITALIAN_SOURCE_HEADS}: {_IT_SOURCES}\b[^.;!?]{{0,40}} non (?:\w+ )?{_IT_MENTION}",
        rf"{_ITALIAN_SOURCE_HEADS}: {_IT_SOURCES}\b[^.;!?]{{0,40}} non sono sufficienti\b",
        rf"{_ITALIAN_SOURCE_HEADS}: {_IT_SOURCES} non (?:se )?ne (?:parla|fa menzione|parlano)\b",
        rf"nes: nessun[oa]? (?:dei|delle|degli|di questi) (?:\w+ )?{_IT_SOURCES}\b",
        rf"non: non (?:ci sono|c'è|vi è|vi sono|esist[eo]\w*|risultano?|è stata trovata) (?:\w+ ){{0,2}}?{_IT_KNOWLEDGE}\b",
        rf"non: non (?:si trova|è presente|compare|è menzionat[oa]|è specificat[oa]|è indicat[oa]|è contenut[oa])\b[^.,;!?]{{0,20}} ne(?:l|i|lla|lle|gli) (?:\w+ )?{_IT_SOURCES}\b",
        r"inf: informazion[ei] (?:richiest[ae] )?non (?:è|sono) (?:disponibil|present|contenut|inclus|menzionat|riportat|fornit)\w*",
        rf"esu va è: (?:esula da[il]?|va oltre|è al di fuori de[il]?)[^.;!?]{{0,15}} {_IT_SOURCES}\b",
        rf"{_ITALIAN_SOURCE_HEADS}: {_IT_SOURCES}\b[^.;!?]{{0,60}}\bnon è possibile (?:determinare|stabilire|sapere|rispondere)\b",
        r"non: non è possibile (?:determinare|stabilire|rispondere)\b[^.;!?]{0,40}(?:con|in base|sulla base)",
        r"^: (?:informazion[ei] non (?:presente|disponibil|trovat)\w*|non (?:menzionato|specificato|disponibile|presente|trovato)|nessuna (?:informazione|risposta))\b[^.;!?]{0,40}(?:[.!]|$)",
        r"pot può: (?:può|potrebbe) (?:\w+ )?(?:precisare|chiarire|specificare|indicare|riformulare)\b[^.!]{0,50}\?",
    ),
    r"(?:mi dispiace|spiacente|purtroppo|mi scusi|scusi|grazie|buongiorno|salve|ho (?:controllato|cercato|consultato)|temo|in quanto|come modello)",
    (
        rf"\b(?:ma|però|tuttavia|comunque|nonostante|sebbene|ciononostante),? (?!{_IT_KEEPS})"
        r"|\b(?:in generale|per quanto ne so|secondo (?!il|la|i|le)|nel 20\d\d,? )"
    ),
    r"\W*(?:se|quando|sebbene|poiché)\b[^,]*$|.*(?:, (?:ma|sebbene|e)|;|\bdichiarato|\bdetto)\b",
    (
        r"\b(?:esplicitamente|direttamente|letteralmente|alla lettera|esatt[oa]|con (?:\w+ )?certezza)\b[^.,;:!?]{0,60}[.;:] (?!(?:può|per favore|il|la|i|le|purtroppo)\b)(?![^.;!?]{0,100}\b(?:non|nessun[oa]?|nulla|niente)\b)\w"
        r"|[.;,:] (?:ma )?(?:nel |nella |secondo )?(?:il |la |l')?(?:second[oa]|terz[oa]|altr[oa]|ultim[oa]|allegato|tabella|nota)\b(?![^.;!?]{0,60}\b(?:non|nessun[oa]?|nulla|niente)\b)"
        r"|[.;:] (?:secondo|da[l]?[^.;:!?]{0,30} si deduce|probabilmente)\b(?![^.;!?]{0,100}\b(?:non|nessun[oa]?|nulla|niente)\b)"
    ),
)
