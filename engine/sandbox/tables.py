"""Data frames as the page draws them: the first and last rows and what the columns are, never the whole.

Works on pandas and polars objects without importing either: IPython's formatters find them by the names of their types
when the code that runs has them. The value is plain JSON:

| field | |
| --- | --- |
| `columns` | `[{"name", "dtype", "number"}]`, the index's levels first |
| `index` | how many of them are the index |
| `rows` | the first `head` rows, then the last ones; as many values as columns |
| `head`, `shape` | where the gap lies; rows and columns of the whole, without the index |

A value is null, a boolean, a number, a string; or `{"text", "cut": characters of the whole}` for a string that was cut;
or `{"text", "sort"}` for anything else, `sort` being what it is sorted by, null for nothing.
"""

import datetime
import decimal
import json
import math
from collections.abc import Callable
from itertools import islice
from typing import Any

MIME = "application/vnd.nightbook.table+json"
HEAD, TAIL = 50, 50  # rows
COLUMNS = 100
TEXT = 500  # characters of one value
LARGEST = 512 * 1024  # bytes of JSON; past it values are cut to `SHORT` characters
SHORT = 60
SAFE = 2**53  # a browser's numbers are exact up to here

Table = dict[str, Any]


def of_pandas(frame: Any) -> Table:
    """A pandas DataFrame."""
    rows, columns = frame.shape
    part = frame.iloc[:, :COLUMNS]
    head, tail = _ends(rows)
    parts = [part.iloc[:head], part.iloc[rows - tail :]]
    index = frame.index
    levels = [(name, index.get_level_values(at)) for at, name in enumerate(index.names)]
    described = [_column("" if name is None else name, values.dtype) for name, values in levels]
    described += [_column(name, dtype) for name, dtype in zip(part.columns, part.dtypes, strict=True)]
    found: list[list[Any]] = []
    for start, end, piece in ((0, head, parts[0]), (rows - tail, rows, parts[1])):
        labels = [list(values[start:end]) for _, values in levels]
        values = [list(piece.iloc[:, at]) for at in range(piece.shape[1])]
        found += map(list, zip(*labels, *values, strict=True))
    return _table(described, len(levels), found, head, (rows, columns))


def of_pandas_series(series: Any) -> Table:
    """A pandas Series: a table of one column."""
    return of_pandas(series.to_frame(name=series.name if series.name is not None else "value"))


def of_polars(frame: Any) -> Table:
    """A polars DataFrame."""
    rows, columns = frame.shape
    part = frame[:, :COLUMNS] if columns > COLUMNS else frame
    head, tail = _ends(rows)
    described = [_column(name, dtype) for name, dtype in zip(part.columns, part.dtypes, strict=True)]
    found = [list(row) for piece in (part.head(head), part.tail(tail)) for row in piece.iter_rows()]
    return _table(described, 0, found, head, (rows, columns))


def of_polars_series(series: Any) -> Table:
    """A polars Series: a table of one column."""
    return of_polars(series.to_frame())


FORMATTERS: tuple[tuple[str, str, Callable[[Any], Table]], ...] = (
    ("pandas", "DataFrame", of_pandas),
    ("pandas", "Series", of_pandas_series),
    ("pandas.core.frame", "DataFrame", of_pandas),
    ("pandas.core.series", "Series", of_pandas_series),
    ("polars.dataframe.frame", "DataFrame", of_polars),
    ("polars.series.series", "Series", of_polars_series),
)


def _ends(rows: int) -> tuple[int, int]:
    return (rows, 0) if rows <= HEAD + TAIL else (HEAD, TAIL)


def _column(name: Any, dtype: Any) -> dict[str, Any]:
    kind = str(dtype)
    number = kind.lower().startswith(("int", "uint", "float", "decimal", "complex")) or kind in ("double", "bool")
    name = " / ".join(map(str, name)) if isinstance(name, tuple) else str(name)
    return {"name": name[:TEXT], "dtype": kind[:80], "number": number and kind != "bool"}


def _table(
    columns: list[dict[str, Any]], index: int, rows: list[list[Any]], head: int, shape: tuple[int, int]
) -> Table:
    def with_texts_of(longest: int) -> Table:
        values = [[_value(value, longest) for value in row] for row in rows]
        return {"columns": columns, "index": index, "rows": values, "head": head, "shape": list(shape)}

    table = with_texts_of(TEXT)
    return table if len(json.dumps(table)) <= LARGEST else with_texts_of(SHORT)


def _value(value: Any, longest: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value if len(value) <= longest else {"text": value[:longest], "cut": len(value)}
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= SAFE else {"text": str(value)[:longest], "sort": float(value)}
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return {"text": "NaN" if math.isnan(value) else str(value), "sort": None}
    if isinstance(value, decimal.Decimal):
        return {"text": str(value)[:longest], "sort": float(value) if value.is_finite() else None}
    text = _text(value, longest)
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return {"text": text, "sort": None if text == "NaT" else value.isoformat()}
    if isinstance(value, datetime.timedelta):
        return {"text": text, "sort": None if text == "NaT" else value.total_seconds()}
    if text in ("NaT", "<NA>"):
        return {"text": text.strip("<>"), "sort": None}
    return {"text": text[:longest], "cut": len(text)} if len(text) > longest else {"text": text, "sort": text}


def _text(value: Any, longest: int) -> str:
    """`str(value)`, of a long list only its beginning: a column may hold images or vectors."""
    if isinstance(value, (list, tuple)) and len(value) > longest:
        return str(list(islice(value, longest)))[:-1] + f", … {len(value)} values]"
    if isinstance(value, (bytes, bytearray)) and len(value) > longest:
        return f"{bytes(value[:longest])!r}… {len(value)} bytes"
    try:
        return str(value)
    except Exception as problem:
        return f"({type(value).__name__}: {type(problem).__name__})"
