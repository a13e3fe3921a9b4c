"""A local directory in the place of an object store, for Spark's own writer.

Spark's writer reaches object stores only through jars and settings of Hadoop. So its files are
written to a directory and uploaded from there, by the driver: the one way on which records pass
through it. Tasks that write themselves (`direct_write_job`, `frame_write_job`) need none of this.
This module must not look into files.
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

__all__ = ["local_twin"]

_PIECE_BYTES: Final = 1024 * 1024


@contextmanager
def local_twin(staging: Staging) -> Iterator[Staging]:
    """`staging` itself if it is a directory; else a directory of this user alone, whose data files
    are uploaded when the body has ended well. All executors must see it."""
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
