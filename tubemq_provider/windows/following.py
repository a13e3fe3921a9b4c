"""Rules of a table that follows changes: keys, the order of changes of a key, and deletes.

An engine reduces a window to the last change of each key, a sink merges those into its table in
the step that publishes the window. Both take the same `Following`. This module must not read or
write anything.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final, Literal

from tubemq_client.errors import ConfigError

__all__ = ["OP", "Following"]

OP: Final = "_op"
"""Column of staged files: ``c``, ``r``, ``u`` or ``d``."""


@dataclass(frozen=True, slots=True)
class Following:
    """`apply` is ``upsert``: each record is the new row of its key; or ``changes``: records insert,
    update and delete rows, and change keys.

    `key` are the columns that name a row. `version` is a column that orders the changes of a key
    wherever they were read; without it a key's changes must come from one partition, in which
    their order is that of the offsets. `soft_delete` is the name of a boolean column: deleted rows
    then stay, with True in it, so that an earlier change that is read later does not revive them.
    """

    apply: Literal["upsert", "changes"]
    key: tuple[str, ...]
    version: str | None = None
    soft_delete: str | None = None

    @property
    def any_order(self) -> bool:
        """True if windows may be published in any order, and twice overlapping."""
        return self.version is not None and (self.soft_delete is not None or self.apply == "upsert")

    @property
    def notes_deleted(self) -> bool:
        """True if deleted keys have to be kept beside the table, with their partition and version:
        no row of the table says whether a change of such a key is a later one."""
        return self.apply == "changes" and self.soft_delete is None

    @property
    def of_deleted(self) -> list[str]:
        """Columns that are kept of a deleted key."""
        names = [*self.key, "partition", *([] if self.version is None else [self.version])]
        return list(dict.fromkeys(names))

    def to_json(self) -> str:
        """Serialise for tasks on other machines."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Following:
        """Parse the text of `to_json`."""
        document = json.loads(text)
        return cls(**{**document, "key": tuple(document["key"])})

    def check_columns(self, names: list[str]) -> None:
        """Raise `ConfigError` unless rows with columns `names` can be followed."""
        problems = [
            f"{option}: {name!r} is no column of the rows ({', '.join(names)})"
            for option, columns in (("key", self.key), ("version", (self.version,)))
            for name in columns
            if name is not None and name not in names
        ]
        if self.soft_delete in names:
            problems.append(f"soft_delete: {self.soft_delete!r} is a column of the rows already")
        if problems:
            raise ConfigError(problems, subject="apply")
