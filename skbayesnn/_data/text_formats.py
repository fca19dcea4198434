"""Text that represents numbers or dates: its format, and how pandas reads it.

The calls are parts of messages. They are Python code for a ``pandas.Series`` that is
named ``column``.
"""

import datetime
import re
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
    r"(\d{1,2}|\d{4}|[A-Za-z]{3,9})([./ -])(\d{1,2}|[A-Za-z]{3,9})(\2|, )(\d{4}|\d\d)"
    r"(?:([T ]|, )\d{1,2}:\d\d(:\d\d)?( ?[AaPp][Mm])?)?"
)
# Numbers: without a comma, with a decimal comma, and with commas between thousands. In
# the second, marks separate thousands; two of them are spaces that do not break lines.
_MARKS = ". '\N{RIGHT SINGLE QUOTATION MARK}\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"
_PLAIN = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_WITHOUT_COMMA = re.compile(r"\s*[+-]?\d+\s*")
_DECIMAL_COMMA = re.compile(rf"\s*[+-]?(\d+|\d{{1,3}}([{_MARKS}]\d{{3}})+),\d+\s*")
_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?\s*")
# Calls are in messages, and marks in them readable.
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


def share_of_numbers(texts: Sequence[str]) -> float:
    """Share of the texts that are numbers, without commas."""
    return sum(map(bool, map(_PLAIN.fullmatch, texts))) / len(texts)


def odd_format(distinct: Sequence[str]) -> tuple[str, str] | None:
    """Content and conversion of dates that are not in ISO format, or of numbers.

    Only of numbers with commas. The result has words for a message; None: most values
    have no such format, or there are few.
    """
    if len(distinct) < _MIN_FORMATTED:
        return None
    sample = distinct[:MAX_FORMATTED]
    calls, others = date_calls(sample, CONVERTIBLE_SHARE)
    if calls:
        example = next(text for text in sample if text not in others)
        return f"dates, such as {example[:40]!r},", _joined(calls, others)
    calls, others = _calls_without_commas(sample, CONVERTIBLE_SHARE)
    if calls:
        example = next(text for text in sample if "," in text and text not in others)
        return (
            f"numbers with commas, such as {example[:40]!r},",
            _joined(calls, others),
        )
    return None


def how_to_read_numbers(texts: Sequence[str], is_mixed: bool = True) -> str:
    """Sentence on how to make numbers of the texts in a column.

    texts : all texts of the column
    is_mixed : whether other values of the column are numbers
    """
    texts = list(dict.fromkeys(texts))[:MAX_FORMATTED]
    calls, others = _calls_without_commas(texts, 0.5, with_commas=0.0)
    if not calls and share_of_numbers(texts) >= 0.5:
        others = [text for text in texts if not _PLAIN.fullmatch(text)]
        calls = [_NUMBERS.format(replaced="", errors=_COERCE if others else "")]
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
    calls, others = date_calls(list(dict.fromkeys(texts))[:MAX_FORMATTED], 0.5)
    if calls and is_mixed:
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


def _calls_without_commas(
    texts: Sequence[str], share: float, with_commas: float = 0.5
) -> tuple[list[str], list[str]]:
    """Calls that read numbers with commas, and the values that they cannot read.

    A comma may be a decimal comma, or separate thousands; there are two calls if both
    are possible.

    share : of the texts that must be numbers; otherwise there are no calls
    with_commas : share of these that must have commas; at least one must
    """
    decimal, thousands = (
        {text for text in texts if pattern.fullmatch(text)}
        for pattern in (_DECIMAL_COMMA, _THOUSANDS)
    )
    marks = sorted({mark for text in decimal for mark in text if mark in _MARKS})
    # After the removal of dots only whole numbers without commas are right.
    without_comma = _WITHOUT_COMMA if "." in marks else _PLAIN
    plain = {text for text in texts if without_comma.fullmatch(text)}
    n_found = max(len(decimal), len(thousands))
    enough = share * len(texts)
    if not n_found or n_found < with_commas * enough or n_found + len(plain) < enough:
        return [], []
    found = (decimal if len(decimal) == n_found else thousands) | plain
    others = [text for text in texts if text not in found]
    errors = _COERCE if others else ""
    without = "".join(f".str.replace({mark!r}, '')" for mark in marks)
    # Numbers among the texts are converted, too; missing values stay missing.
    as_text = ".astype('string')"
    ways = [f"{as_text}{without}.str.replace(',', '.')"] * (len(decimal) == n_found)
    ways += [f"{as_text}.str.replace(',', '')"] * (len(thousands) == n_found)
    calls = [_NUMBERS.format(replaced=way, errors=errors) for way in ways]
    if len(calls) == 2:
        calls[1] = f"(if the commas are between thousands) {calls[1]}"
    return calls, others


# ---- dates


def date_calls(texts: Sequence[str], share: float) -> tuple[list[str], list[str]]:
    """Calls that read dates in another format than ISO, and what they cannot read.

    Day and month may be in both orders; there are then two calls.

    share : of the texts that must have the format; otherwise there are no calls
    """
    enough = share * len(texts)
    # The month names of the first texts may have several formats, as of May.
    for text in [*texts[:3], *texts[len(texts) // 2 :][:3]]:
        counts = {f: [_has_format(t, f) for t in texts] for f in _formats_of(text)}
        most = max(map(sum, counts.values()), default=0)
        formats = [f for f, has in counts.items() if sum(has) == most >= enough]
        if formats:
            has = counts[formats[0]]
            others = [t for t, is_read in zip(texts, has, strict=True) if not is_read]
            errors = _COERCE if others else ""
            return [_DATES.format(format=f, errors=errors) for f in formats], others
    return [], []


def _formats_of(text: str) -> list[str]:
    """Formats of ``strptime`` that a text may have; none if it is a date in ISO."""
    parts = _OTHER_DATE.fullmatch(text)
    if parts is None or is_iso_date(text):
        return []
    first, gap, second, second_gap, year, time_gap, seconds, half = parts.groups()
    if gap == "." and len(first + second + year) < 6:  # such as 1.12.10, a version
        return []
    if time_gap is None:
        time = ""
    else:
        time = f"{time_gap}{'%I' if half else '%H'}:%M{':%S' if seconds else ''}"
        time += (half or "")[:-2] + "%p" * bool(half)
    names = {
        part: "%b" if len(part) == 3 else "%B"
        for part in (first, second)
        if part.isalpha()
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
