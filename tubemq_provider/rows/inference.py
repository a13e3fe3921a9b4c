"""Schema inferred once from the first records, and kept in a file from then on.

The file makes inference safe to retry: the first writer wins, and all later reads of any window use
its schema, so that a retry produces the same columns. To add a field, edit the file. This module
must not open connections; the caller provides the bodies.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.rows.ddl import ddl_of, parse_ddl
from tubemq_provider.rows.spec import CHANGES, SUBJECT, DecodeSpec, schema_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["NO_SCHEMA", "infer"]

NO_SCHEMA: Final = "nothing string"
"""Schema of a window without records: nothing is written with it, and it is not kept."""


def infer(spec: DecodeSpec, sample: Callable[[], pa.BinaryArray]) -> DecodeSpec:
    """Return `spec` with a schema: its own, that of its file, or the one inferred from the
    `sample`, which is then written to the file if it can be parsed again. Raises `ConfigError` that
    names the file if the sample has no object with a field, or fields that no column can hold, and
    if the file holds no schema."""
    if not spec.infers:
        return spec
    path = Path(spec.schema_file or "")
    if not path.exists():
        bodies = sample()
        if not len(bodies):
            return spec.with_schema(NO_SCHEMA)
        _keep(path, _inferred(path, spec, bodies))
    return spec.with_schema(schema_of(path, path.read_text(encoding="utf-8").strip()))


def _inferred(path: Path, spec: DecodeSpec, bodies: pa.BinaryArray) -> str:
    """Infer a schema that `parse_ddl` accepts: no later try can repair a bad file."""
    nothing = "schema: none of them is a JSON object with a field that has a value"
    try:
        if spec.format in CHANGES:
            from tubemq_provider.rows.changes.inference import infer_rows

            text = ddl_of(infer_rows(spec, bodies))
        else:
            from tubemq_provider.rows.from_json import infer_schema

            text = ddl_of(infer_schema(bodies))
        problems = [] if text else [nothing]
        if text:
            parse_ddl(text)
    except ConfigError as error:
        problems = error.problems
    if problems:
        raise ConfigError(
            [f"{problem} (the first {len(bodies)} records)" for problem in problems]
            + [f"schema_file: {path} cannot be made from them; write the schema into it"],
            subject=SUBJECT,
        )
    return text


def _keep(path: Path, text: str) -> None:
    """Write the file atomically, and only if it does not exist yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".schema-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        Path(draft).chmod(0o644)
        with suppress(FileExistsError):  # another task was first; use its schema
            os.link(draft, path)
    finally:
        Path(draft).unlink()
