"""Text that represents numbers or dates: its format, and how pandas reads it.

The calls are parts of messages. They are Python code for a ``pandas.Series`` that is
named ``column``.
"""

import datetime
import re
from collections import Counter
from collections.abc import Sequence

# With this share of values that represent numbers or dates, text should be converted.
CONVERTIBLE_SHARE = 0.9
# With fewer distinct values, text is not compared with other formats of dates and
# numbers; with more, the first ones are.
_MIN_FORMATTED, MAX_FORMATTED = 10, 200
# A date in ISO 8601, as in CSV files that pandas writes. A time zone may follow.
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?")
# Parts of a date in another format, such as 31.12.2024 10:30 or Dec 31, 2024.
_OTHER_DATE = re.compile(
    r"(\d{1,2}|\d{4}|[A-Za-z]{3,9}\.?)([./ -])(\d{1,2}|[A-Za-z]{3,9}\.?)"
    r"(\2|, )(\d{4}|\d\d?)(?:([T ]|, )\d{1,2}:\d\d(:\d\d)?( ?[AaPp][Mm])?)?"
)
# A number that pandas reads.
_PLAIN = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
# Text before and after a number. Letters or # before it are part of a name, such as
# room 5; < and > are a bound.
_AROUND = re.compile(
    r"([^\w#<>]*?)[-+\u2212\u2013]?[.,]?"
    r"[0-9](?:[0-9.,\s'\u2019_]*[0-9])?(?:[eE][-+]?[0-9]+)?(.*)"
)
# A minus sign or dash that pandas does not read.
_MINUS = "\u2212\u2013"
# Marks between thousands, besides commas or dots; also spaces that do not break lines.
_MARKS = r"\s'\u2019_"
# Dots or commas that separate thousands, decimal marks, and the condition in words.
_READINGS = (
    ("", ",.", ""),
    (".", ",", "(if the dots are between thousands) "),
    (",", ".", "(if the commas are between thousands) "),
)
# Above this share of common integers on both sides of a comma, texts are pairs.
_PAIRS_SHARE = 0.7
# Words of truth values, in lower case.
_WORDS = {"true": True, "yes": True, "false": False, "no": False}
_NUMBERS = "pandas.to_numeric(column{replaced}{errors})"
_DATES = "pandas.to_datetime(column, format={format!r}{errors})"
_COERCE = ", errors='coerce'"


def is_iso_date(text: str) -> bool:
    """Whether text is a date in ISO format, with or without a time zone."""
    if not ISO_DATE.match(text):
        return False
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def is_number(text: str) -> bool:
    """Whether text is a number, without commas."""
    return bool(_PLAIN.fullmatch(text))


def odd_format(distinct: Sequence[str], is_long: bool) -> tuple[str, str] | None:
    """Content and conversion of dates that are not in ISO format, or of numbers.

    The result has words for a message; None: most values have no such format, or there
    are few.

    is_long : whether plain numbers are meant, too; a few can be names of categories
    """
    if len(distinct) < _MIN_FORMATTED:
        return None
    calls, others = date_calls(distinct, CONVERTIBLE_SHARE)
    if calls:
        example = next(text for text in distinct if text not in others)
        return f"dates, such as {example[:40]!r},", _joined(calls, others)
    calls, others = _number_calls(distinct, CONVERTIBLE_SHARE)
    read = set(distinct).difference(others)
    odd = [text for text in distinct if text in read and not _PLAIN.fullmatch(text)]
    least = 0 if is_long else CONVERTIBLE_SHARE / 2 * len(distinct)
    if not calls or len(odd) < least or (odd and _are_pairs(odd)):
        return None
    example = (odd or distinct)[0]
    commas = " with commas" if "," in example else ""
    return f"numbers{commas}, such as {example[:40]!r},", _joined(calls, others)


def how_to_read_numbers(texts: Sequence[str], is_mixed: bool = True) -> str:
    """Sentence on how to make numbers of the texts in a column.

    texts : all texts of the column
    is_mixed : whether other values of the column are numbers
    """
    texts = list(dict.fromkeys(texts))
    words = {text: _WORDS.get(text.strip().lower()) for text in texts}
    if not is_mixed and None not in words.values():
        return f"Convert the column with column.map({words})."
    calls, others = _number_calls(texts, 0.5)
    has_plain = is_mixed or any(map(_PLAIN.fullmatch, texts))
    # 5% and 0.05 may be the same.
    if has_plain and any(_rest_of(texts)):
        return "Write all numbers in one format, such as 0.05."
    if calls:
        return f"Convert the column with {_joined(calls, others)}."
    if is_mixed:
        call = _NUMBERS.format(replaced="", errors=_COERCE)
        return f"If only some values are no numbers, {call} makes them missing."
    return (
        f"Remove what is not part of the number from values such as {texts[0][:40]!r}."
    )


def how_to_read_dates(texts: Sequence[str], is_mixed: bool) -> str:
    """Sentence on how to make dates of the texts in a column, which are no ISO dates.

    is_mixed : whether other values of the column are dates
    """
    calls, others = date_calls(list(dict.fromkeys(texts)), 0.5)
    if any(_formats_of(text) for text in (texts if is_mixed else others)):
        return "Write all dates in one format, such as 2024-12-31."
    if calls:
        return f"Convert the column with {_joined(calls, others)}."
    return "Replace values that are no dates by None, a missing value."


def _joined(calls: Sequence[str], others: Sequence[str]) -> str:
    """Calls in words, and what happens to values that they cannot read."""
    words = " or ".join(calls)
    if others:
        words += f", which makes other values, such as {others[0][:40]!r}, missing"
    return words


# ---- numbers


def _rest_of(texts: Sequence[str]) -> tuple[str, str]:
    """What most texts have before and after their number, such as "$", or a unit."""
    found = [_AROUND.fullmatch(text.strip()) for text in texts]
    parts = Counter((m[1].strip(" -+\u2212\u2013"), m[2].strip()) for m in found if m)
    rest, n = parts.most_common(1)[0] if parts else (("", ""), 0)
    return rest if 2 * n > len(texts) else ("", "")


def _number_calls(texts: Sequence[str], share: float) -> tuple[list[str], list[str]]:
    """Calls that read numbers, and the values that they make missing.

    There are several calls if dots or commas may be decimal marks or separate
    thousands. A call never makes a wrong number of a value in another format.

    share : of the texts that must be numbers; at least one must
    """
    before, after = _rest_of(texts)
    signed, sign = re.escape(before), f"[-+{_MINUS}]"
    best: list[str] = []
    calls: dict[str, str] = {}
    for group, decimal, condition in _READINGS:
        pattern = re.compile(
            rf"\s*({sign}?{signed}|{signed}{sign})\s*"
            rf"(([0-9]+|[1-9][0-9]{{0,2}}([{_MARKS}{group}][0-9]{{3}})+)"
            rf"([{decimal}][0-9]*)?|[{decimal}][0-9]+)([eE][+-]?[0-9]+)?"
            rf"\s*{re.escape(after)}\s*"
        )
        read = [text for text in texts if pattern.fullmatch(text)]
        if not read or len(read) < max(share * len(texts), len(best)):
            continue
        inner = "".join(text.strip().replace(after, "") for text in read)
        found = sorted(set(re.findall(rf"[{_MARKS}{group}]", inner)))
        marks = dict.fromkeys(r"\s" if m.isspace() else m for m in found)
        parts = [
            f"[{''.join(marks)}]" if marks else "",
            *map(re.escape, (before, after)),
        ]
        steps = [("|".join(filter(None, parts)), "")]
        if group != "," and "," in inner:
            steps.append((",", "."))
        if any(c in inner for c in _MINUS):
            steps.append((f"[{_MINUS}]", "-"))
        steps = [(old, new) for old, new in steps if old]

        def converted(text, steps=steps):
            for old, new in steps:
                text = re.sub(old, new, text)
            return text

        others = set(texts).difference(read)
        if any(_PLAIN.fullmatch(converted(text)) for text in others):
            continue
        if len(read) > len(best):
            best, calls = read, {}
        # Numbers among the texts are left as they are.
        way = ".astype(object)" * bool(steps)
        for old, new in steps:
            quote = '"' if "'" in old else "'"
            raw = "r" * ("\\" in old)
            way += f".replace({raw}{quote}{old}{quote}, {new!r}, regex=True)"
        calls.setdefault(way, condition * bool(calls))
    readable = set(best)
    not_read = [text for text in texts if text not in readable]
    errors = _COERCE if not_read else ""
    return [
        condition + _NUMBERS.format(replaced=way, errors=errors)
        for way, condition in calls.items()
    ], not_read


def _are_pairs(texts: Sequence[str]) -> bool:
    """Whether most integers on one side of a comma are also on the other side.

    They are then pairs of codes, such as 3,4, rather than decimals.
    """
    if not all(re.fullmatch(r"[0-9]+,[0-9]+", text) for text in texts):
        return False
    left, right = map(set, zip(*(text.split(",") for text in texts), strict=True))
    return len(left & right) > _PAIRS_SHARE * len(left | right)


# ---- dates


def date_calls(texts: Sequence[str], share: float) -> tuple[list[str], list[str]]:
    """Calls that read dates in another format than ISO, and what they cannot read.

    Day and month may be in both orders; there are then two calls. Of many texts, the
    formats of the first ones decide.

    share : of the texts that must have the format; otherwise there are no calls
    """
    sample = texts[:MAX_FORMATTED]
    possible = dict.fromkeys(f for text in sample for f in _formats_of(text))
    unread = {f: [t for t in sample if not _has_format(t, f)] for f in possible}
    fewest = min(map(len, unread.values()), default=len(sample))
    if len(sample) - fewest < max(1, share * len(sample)):
        return [], []
    formats = [f for f, others in unread.items() if len(others) == fewest]
    others = unread[formats[0]]
    rest = texts[MAX_FORMATTED:]
    if rest and not others:
        others = [t for t in rest if not any(_has_format(t, f) for f in formats)][:1]
    errors = _COERCE if others else ""
    return [_DATES.format(format=f, errors=errors) for f in formats], others


def _formats_of(text: str) -> list[str]:
    """Formats of ``strptime`` that a text may have; none if it is a date in ISO."""
    parts = _OTHER_DATE.fullmatch(text)
    if parts is None or is_iso_date(text):
        return []
    first, gap, second, second_gap, year, time_gap, seconds, half = parts.groups()
    if gap == "." and len(first + second + year) < 6:  # such as 1.12.10, a version
        return []
    if len(year) == 1 and not (len(first) == 4 and first.isdigit()):
        return []
    if time_gap is None:
        time = ""
    else:
        time = f"{time_gap}{'%I' if half else '%H'}:%M{':%S' if seconds else ''}"
        time += (half or "")[:-2] + "%p" * bool(half)
    names = {
        part: ("%b" if len(bare) == 3 else "%B") + part[len(bare) :]
        for part in (first, second)
        if (bare := part.rstrip(".")).isalpha()
    }
    if len(first) == 4 and first.isdigit():
        orders = [("%Y", "%m", "%d")]
    elif second in names:
        orders = [("%d", names[second], "%y")]
    elif first in names:
        orders = [(names[first], "%d", "%y")]
    else:
        orders = [("%d", "%m", "%y"), ("%m", "%d", "%y")]
    return [
        f"{a}{gap}{b}{second_gap}{'%Y' if len(year) == 4 else c}{time}"
        for a, b, c in orders
    ]


def _has_format(text: str, date_format: str) -> bool:
    try:
        datetime.datetime.strptime(text, date_format)
    except ValueError:
        return False
    return True
