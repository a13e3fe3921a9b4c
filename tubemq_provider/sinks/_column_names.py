"""Column names that some readers cannot tell apart, in a table or a directory.

Delta, Spark, Hive and most engines of SQL know no case in names, and Iceberg, which uses paths,
knows no column ``a.b`` from the part ``b`` of a column ``a``. This module judges names and knows no
table format. Columns that a table has under just that name are its own affair. Readers of windows
in directories see the window's folder as a column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.windows.facts import FileFact

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["case_problems", "path_problems", "refuse_folder_column", "refuse_folder_columns"]

_WAY_OUT: Final = "in decode or transform"
_FOLDER: Final = "window_id"


def case_problems(files: pa.Schema, table: Iterable[str] = ()) -> list[str]:
    """Return a line for each column of the files that `table` lacks and that readers would confuse
    with another column."""
    there = [*table]
    seen = {name.lower(): f"the table's column {name!r}" for name in there}
    problems = []
    for field in _new(files, there):
        mine = f"column {field.name!r}"
        other = seen.setdefault(field.name.lower(), mine)
        if other != mine:
            problems.append(
                f"{mine} of the files differs from {other} in case alone, and most readers of "
                f"tables take them for one; rename it {_WAY_OUT}"
            )
        problems += _parts_in_case(field, mine)
    return problems


def path_problems(files: pa.Schema, table: Iterable[str], paths: Iterable[str] = ()) -> list[str]:
    """Return a line for each column of the files that `table` lacks and whose path is ambiguous
    among `paths`, those of the table."""
    seen = dict.fromkeys(paths, "the table's")
    problems = []
    for field in _new(files, table):
        for path in _paths_of(field, field.name):
            mine = f"column {field.name!r}"
            other = seen.setdefault(path, mine)
            if other != mine:
                problems.append(
                    f"{mine} of the files has the path {path!r}, which is {other} too: a dot "
                    f"stands for a part of a column; rename it {_WAY_OUT}"
                )
    return problems


def refuse_folder_columns(files: Iterable[FileFact]) -> None:
    """`refuse_folder_column` of all columns of a window's files, and of folders inside it. A driver
    that only publishes needs no pyarrow for it: files of Spark's own writer name only leaves, of
    which the first part of the path is the column."""
    for file in files:
        columns = file.nulls or {path.split(".")[0] for path in file.leaves}
        refuse_folder_column([*columns, *(name for name, _, _ in file.keys)])


def refuse_folder_column(names: Iterable[str]) -> None:
    """Raise `ConfigError` for a column with the name of the window directories."""
    for name in names:
        if name.lower() == _FOLDER:
            raise ConfigError(
                f"column {name!r} has the name of the folders of windows ({_FOLDER}=…/), which "
                f"readers see as a column and take for it; rename it {_WAY_OUT}",
                subject="sink",
            )


def _new(files: pa.Schema, table: Iterable[str]) -> list[pa.Field]:
    table_names = {*table}
    return [field for field in files if field.name not in table_names]


def _parts_in_case(field: pa.Field, column: str) -> Iterator[str]:
    import pyarrow as pa

    if not pa.types.is_nested(field.type):
        return
    parts = [field.type.field(index) for index in range(field.type.num_fields)]
    lower = [part.name.lower() for part in parts]
    alike = sorted({part.name for part in parts if lower.count(part.name.lower()) > 1})
    if alike:
        yield (
            f"parts {', '.join(map(repr, alike))} of {column} differ in case alone, and most "
            f"readers of tables take them for one; rename one {_WAY_OUT}"
        )
    for part in parts:
        yield from _parts_in_case(part, column)


def _paths_of(field: pa.Field, path: str) -> Iterator[str]:
    import pyarrow as pa

    yield path
    if pa.types.is_struct(field.type):
        for index in range(field.type.num_fields):
            part = field.type.field(index)
            yield from _paths_of(part, f"{path}.{part.name}")
