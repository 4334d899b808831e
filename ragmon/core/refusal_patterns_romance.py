"""Wordings of refusals in French, Spanish, Portuguese and Italian; `ragmon.core.refusal_patterns` says how they are written."""

from __future__ import annotations

from typing import Final

from ragmon.core.refusal_patterns import Language

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
