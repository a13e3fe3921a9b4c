"""Local staging directory in place of an object store, for Spark's own writer.

Spark's writer needs jars and Hadoop settings to reach object stores. So its files are written to a
directory, from which the driver uploads them: the only engine path on which data passes through the
driver. Tasks that write themselves (`direct_write_job`, `frame_write_job`) do not need it. This
module must not look into files.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tubemq_provider.files.footers import data_names
from tubemq_provider.files.locations import LocalLocation, location_of
from tubemq_provider.files.objects import is_remote

if TYPE_CHECKING:
    from tubemq_provider.windows.protocols import Staging

__all__ = ["local_staging"]

_PIECE_BYTES: Final = 1024 * 1024


@contextmanager
def local_staging(staging: Staging) -> Iterator[Staging]:
    """Yield `staging` itself if it is a directory; else a private temporary directory, whose data
    files are uploaded when the body has succeeded. All executors must see it."""
    if not is_remote(staging.path):
        yield staging
        return
    with tempfile.TemporaryDirectory(prefix="tubemq-relay-", ignore_cleanup_errors=True) as folder:
        yield replace(staging, path=folder, options={}, final=False)
        _upload(Path(folder), staging)


def _upload(folder: Path, staging: Staging) -> None:
    target = location_of(staging)
    for name in data_names(LocalLocation(folder).stored()):
        output = target.create(name)
        try:
            with (folder / name).open("rb") as source:
                shutil.copyfileobj(source, output.stream, _PIECE_BYTES)
        except BaseException:
            output.abandon()
            raise
        output.finish()
