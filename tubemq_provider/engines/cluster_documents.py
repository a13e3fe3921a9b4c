"""Documents that a driver in a cluster and the task's machine exchange: small JSON objects next to
the files of a try, in the sink's object store.

They correspond to the files in the folder of an `Application`, where both are on one machine. Files
that a window's marker does not name are tidied, and so are these. This module starts nothing and
judges nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.files.locations import document_in, keep_document, location_at
from tubemq_provider.windows.protocols import Document

__all__ = ["ORDER_NAME", "SECRETS_NAME", "ClusterTask", "Exchange"]

ORDER_NAME: Final = "tubemq-order.json"
SECRETS_NAME: Final = "tubemq-secrets"
"""Names under which the cluster's manager puts the shipped files into the driver's directory."""

_TOLD: Final = "told.json"
_RESULT: Final = "result.json"
_WORKS: Final = "works.json"
_STOP: Final = "stop.json"


class Exchange:
    """Documents below `url`, opened with `options`. Writes are atomic; reading a missing document
    returns None, other failures of the store, refusals included, raise `OSError`."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self._location = location_at(url, options)

    def __repr__(self) -> str:
        return f"Exchange({self._location.url!r})"

    @property
    def report(self) -> Document | None:
        """Latest progress document of the driver."""
        return self._get(_TOLD)

    @property
    def result(self) -> Document | None:
        """Outcome of the job; None while there is none."""
        return self._get(_RESULT)

    @property
    def stop_requested(self) -> bool:
        """True if the driver must stop."""
        return self._get(_STOP) is not None

    def begin(self) -> None:
        """Write a document (driver's side) that disappears when the place is tidied, and is not
        written again."""
        self._put(_WORKS, {})

    @property
    def tidied(self) -> bool:
        """True if the document of `begin` is gone: the window is published, or was given up."""
        return self._get(_WORKS) is None

    def write_report(self, document: Document) -> None:
        """Replace the progress document (driver's side)."""
        self._put(_TOLD, document)

    def finish(self, document: Document) -> None:
        """Write the outcome (driver's side), atomically."""
        self._put(_RESULT, document)

    def request_stop(self) -> None:
        """Request the driver to stop."""
        self._put(_STOP, {})

    def _get(self, name: str) -> Document | None:
        try:
            document: Document = document_in(self._location, name)
        except FileNotFoundError:
            return None
        except ConfigError as error:  # refused by the store, for example for an expired token
            raise OSError(str(error)) from error
        except ValueError as error:  # size and bytes are two requests
            raise OSError(f"{name} was replaced while it was read") from error
        return document

    def _put(self, name: str, document: Document) -> None:
        try:
            keep_document(self._location, name, document)
        except ConfigError as error:
            raise OSError(str(error)) from error


class ClusterTask:
    """Job of a driver on a node of a cluster: the order from its working directory, and the
    exchange. Has the methods of `Application` that a driver uses."""

    def __init__(self, folder: Path, options: Mapping[str, str]) -> None:
        self.order: Document = json.loads((folder / ORDER_NAME).read_text(encoding="utf-8"))
        self._exchange = Exchange(self.order["cluster"]["exchange"], options)
        self._begun = False

    @property
    def stop_requested(self) -> bool:
        """True if the driver must stop, which includes a tidied place; False while the store does
        not answer."""
        try:
            return self._exchange.stop_requested or (self._begun and self._exchange.tidied)
        except OSError:
            return False

    def write_report(self, document: Mapping[str, Any]) -> None:
        """See `Exchange.tell`."""
        if not self._begun:
            self._exchange.begin()
            self._begun = True
        self._exchange.write_report(dict(document))

    def finish(self, document: Mapping[str, Any]) -> None:
        """See `Exchange.finish`."""
        self._exchange.finish(dict(document))

    def bound_log(self) -> None:
        """Do nothing: the cluster's manager keeps the log."""
