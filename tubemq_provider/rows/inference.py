"""A schema found once in the first records, and kept in a file from then on.

The file is what makes inference safe to try again: the first writer wins, and all later reads of
any window use what it wrote, so that a retry makes the same columns. A new field is taken up by
editing the file. This module must not open connections; it is given the bodies.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.rows.ddl import ddl_of
from tubemq_provider.rows.spec import SUBJECT, DecodeSpec

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["NOTHING", "settle"]

NOTHING: Final = "nothing string"
"""The schema of a window without records: nothing is written with it, and it is not kept."""


def settle(spec: DecodeSpec, sample: Callable[[], pa.BinaryArray]) -> DecodeSpec:
    """`spec` with a schema: its own, that of its file, or that of the `sample`, which is then kept
    in the file. Raises `ConfigError` if the sample has no object with a field."""
    if spec.format != "json" or spec.schema is not None:
        return spec
    path = Path(spec.schema_file or "")
    if not path.exists():
        from tubemq_provider.rows.from_json import infer_schema

        bodies = sample()
        if not len(bodies):
            return replace(spec, schema=NOTHING)
        found = infer_schema(bodies)
        if not len(found):
            raise ConfigError(
                f"schema: none of the first {len(bodies)} records is a JSON object with a field "
                "that has a value; write the schema",
                subject=SUBJECT,
            )
        _keep(path, ddl_of(found))
    return replace(spec, schema=path.read_text(encoding="utf-8").strip())


def _keep(path: Path, text: str) -> None:
    """Whole or not at all, and only if there is no file yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".schema-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        Path(draft).chmod(0o644)
        with suppress(FileExistsError):  # another task was first, and its schema holds
            os.link(draft, path)
    finally:
        Path(draft).unlink()
