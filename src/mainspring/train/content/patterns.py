"""What the rules search texts for. Each says what the wordings of its rule say, look-alikes left out."""

import re

NOT = r"n['’]t"
URL = r"(?:https?://|www\.)\S+"
# Lines as programs have them: prose may begin with "import duties", "class action" or "public transport".
CODE = (
    r"```|(?:^|\n)[ \t]*(?:(?:async )?def \w+\s*\(|class [A-Z]\w*(?:\s*[:({]| (?:extends|implements) )"
    r"|import [\w.*]+(?:, \w+)*(?: as \w+)?;?[ \t]*(?:\n|$)|import [^\n]+ from ['\"]"
    r"|import [\"(]|from [\w.]+ import |#include|function \w*\s*[({]"
    r"|public (?:class|static|interface|enum) |public (?:[\w<>\[\],]+ ){0,3}\w+\(|SELECT |<html|#!/|for \(|print\()"
)
FENCED = re.compile(r"```.*?(?:```|$)", re.DOTALL)
SORRY = rf"\b(?:sorry|apologi[sz](?:es?|ed|ing)|apolog(?:y|ies))\b|(?<!not )(?<!{NOT} )(?<!never )\bregret\b"
# Poems and songs can't wait, hide or stop; "we" that can't have half a person is everybody.
_NOT_ABLE = rf"can(?:not|['’]t| not)|wo{NOT}|will not"
REFUSAL = (
    rf"\bI (?:{_NOT_ABLE})\b(?! (?:wait|help but|believe|imagine (?:my|life|how|a world)|deny|ignore (?:a|it|how)|stress"
    r"|emphasi[sz]e|give up|give in|stop(?: (?:it|lov|think|laugh|smil|feel|sing))|hide|eat|live|afford|betray|express my joy"
    r"|be (?:beat|at|late|there)|thank you enough|speak of what|go on|sleep|rest)\b)"
    rf"|\bwe (?:{_NOT_ABLE}) (?:\w+ly )?(?:do (?:that|this|it)|provide|help|assist|offer|accept|process|cancel|change|determine|give you"
    r"|share|answer|make|book|create|complete|confirm|guarantee|find|deliver|refund|take|send|ship|seem to|tell you)\b"
    rf"|\bI (?:do not|do{NOT}) have (?:the |any )?(?:access|capab|abilit|means|information|enough)|\bI have no (?:access|means|way)\b"
    r"|\bI(?: am|['’]m) not capable\b"
    r"|\bI am (?:not able|unable)\b|\bwe are (?:not able|unable)\b|\b(?:I|we) (?:must|have to) decline\b"
    r"|\b(?:I['’]m|we['’]re) (?:unable|not able|afraid (?:I|we)\b)|\bnot able to (?:help|assist)"
)
GREETING = r"^\s*(?:hi|hello|hey|greetings|good (?:morning|afternoon|evening)|welcome)\b"
MONEY = r"[$€£]\s?\d|\b\d[\d,.]*\s?(?:dollars|euros|pounds|USD|EUR)\b"
LETTERS = r"[Ѐ-ӿ؀-ۿ぀-ヿ一-鿿가-힯Ͱ-Ͽ֐-׿ऀ-ॿ]"
FIRST_PERSON = r"\b(?:I|[Mm]e|[Mm]y|I['’](?:m|ll|ve|d))\b"
HEDGES = r"\b(?:might|(?-i:may)|perhaps|maybe|possibly|probably|likely|it seems|could be)\b"  # May is a month
AI = r"\b(?:[Aa]s|I['’]m|I am) (?:just |only )?an? (?:AI\b|artificial intelligence|(?:large )?language model)"
# Arithmetic and equations; 24/7, dates, paths and two sums in dollars are none.
MATH = (
    r"(?<![\w/&?=-])\d[\d.,]*\s*[+*=^×÷]\s*[-(]?\d|\d\s+/\s+\d|\d\)?\s*=\s*[-(]?\d|[√∑∫]"
    r"|\\(?:frac|sqrt|sum|int|times)\b|\\[(\[]|\$[^$\n]*[\\^_=][^$\n]*\$|\$[A-Za-z]\$"
)
_EQUATION = r"(?<!\bint )(?<!\blet )(?<!\bvar )(?<!\bconst )\b[A-Za-z] = -?\d[\d.,]*(?![\w;])"
# Not a quantity of something.
_UNITS = (
    "calories|kcal|words|characters|dollars|euros|pounds|lbs|miles|km|kilomet|feet|ft|met(?:er|re)s|yards|acres|inches|"
    "grams|mg|kg|ml|liters|litres|hours|minutes|seconds|days|years|people|students|employees|units|points|steps|rpm|"
    "watts|mAh|MHz|square|times|percent|%"
)
YEAR = rf"(?<![$€£])(?<!\d[.,])\b(?:1[5-9]|20)\d\d\b(?![.,]\d)(?!\s?(?:{_UNITS}))"
PROHIBITS = rf"\b(?:not|cannot|never|avoid|only)\b|\b\w+{NOT}\b"
COMPLAINS = (
    rf"\b(?:wrong|not what|did{NOT} (?:ask|say)|no, (?!thank|that['’]?s (?:all|it|fine|okay|ok)\b)|mistake|incorrect|frustrat"
    rf"|already told|does{NOT} work)"
)
THANKS = r"(?<!\bno )(?<!\bno, )\bthank|\bgreat\b.*\bhelp"
_NO_ERROR = re.compile(r'"[\w-]*(?:error|failed)[\w-]*"\s*:\s*(?:null|false|0|""|\[\]|\{\})', re.IGNORECASE)
_ERROR = re.compile(
    r'error\b|not found|fail(?:ed|ure)|\bexception\b|\bHTTP [45]\d\d\b|"(?:ok|success)"\s*:\s*false', re.IGNORECASE
)


def bold(reply: str) -> bool:
    """Bold words or headings; powers and comments in code are neither."""
    prose = FENCED.sub("", reply)
    marks = r"(?:^|\n)#{2,4} \S" if re.search(CODE, prose) else r"(?:^|\n)#{1,4} \S"
    return re.search(rf"(?<!\w)\*\*\S[^*\n]*\*\*|{marks}", prose) is not None


def mathematics(reply: str) -> bool:
    """Beside a program, x = 5 is an assignment."""
    return re.search(MATH, reply) is not None or (
        re.search(_EQUATION, reply) is not None and re.search(CODE, reply) is None
    )


def reports_error(result: str) -> bool:
    """A field that says there was none is no error."""
    return _ERROR.search(_NO_ERROR.sub("", result)) is not None
