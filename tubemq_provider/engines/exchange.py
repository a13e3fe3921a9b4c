"""What the driver of a cluster and the task's machine tell each other: small documents beside the
files of a try, in the sink's object store.

They are what `Application` keeps in its folder where both are one machine. Whatever a window's
marker does not name is tidied, and so are these. This module starts nothing and judges nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.files.locations import document_in, keep_document, location_at
from tubemq_provider.windows.protocols import Document

__all__ = ["ORDER_NAME", "SECRETS_NAME", "ClusterOrder", "Exchange"]

ORDER_NAME: Final = "tubemq-order.json"
SECRETS_NAME: Final = "tubemq-secrets"
"""What the cluster's manager calls the files that it brings to the driver."""

_TOLD: Final = "told.json"
_RESULT: Final = "result.json"
_WORKS: Final = "works.json"
_STOP: Final = "stop.json"


class Exchange:
    """The place `url`, which `options` open. Documents are whole or not there; reading one that is
    not there gives None, other troubles of a store raise `OSError`, also where it refuses."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self._location = location_at(url, options)

    def __repr__(self) -> str:
        return f"Exchange({self._location.url!r})"

    @property
    def told(self) -> Document | None:
        """What the driver has told last."""
        return self._get(_TOLD)

    @property
    def result(self) -> Document | None:
        """The outcome; None while there is none."""
        return self._get(_RESULT)

    @property
    def asked_to_stop(self) -> bool:
        """Whether the driver is to end."""
        return self._get(_STOP) is not None

    def begin(self) -> None:
        """The driver's: a document that goes when the place is tidied, and does not come back."""
        self._put(_WORKS, {})

    @property
    def tidied(self) -> bool:
        """Whether what `begin` has left is gone: the window is published, or was given up."""
        return self._get(_WORKS) is None

    def tell(self, document: Document) -> None:
        """The driver's: replace what is told."""
        self._put(_TOLD, document)

    def finish(self, document: Document) -> None:
        """The driver's: the outcome, in one step."""
        self._put(_RESULT, document)

    def ask_to_stop(self) -> None:
        """Leave word for the driver to end."""
        self._put(_STOP, {})

    def _get(self, name: str) -> Document | None:
        try:
            found: Document = document_in(self._location, name)
        except FileNotFoundError:
            return None
        except ConfigError as error:  # the store refuses, for an expired token say
            raise OSError(str(error)) from error
        except ValueError as error:  # size and bytes are two requests
            raise OSError(f"{name} was replaced while it was read") from error
        return found

    def _put(self, name: str, document: Document) -> None:
        try:
            keep_document(self._location, name, document)
        except ConfigError as error:
            raise OSError(str(error)) from error


class ClusterOrder:
    """What a driver has of its application on a node of a cluster: the order in its directory, and
    the exchange. Has of `Application` what a driver uses."""

    def __init__(self, folder: Path, options: Mapping[str, str]) -> None:
        self.order: Document = json.loads((folder / ORDER_NAME).read_text(encoding="utf-8"))
        self._exchange = Exchange(self.order["cluster"]["exchange"], options)
        self._begun = False

    @property
    def asked_to_stop(self) -> bool:
        """Whether the driver is to end, also when the place was tidied; not where the store gives
        no answer just now."""
        try:
            return self._exchange.asked_to_stop or (self._begun and self._exchange.tidied)
        except OSError:
            return False

    def tell(self, document: Mapping[str, Any]) -> None:
        """See `Exchange.tell`."""
        if not self._begun:
            self._exchange.begin()
            self._begun = True
        self._exchange.tell(dict(document))

    def finish(self, document: Mapping[str, Any]) -> None:
        """See `Exchange.finish`."""
        self._exchange.finish(dict(document))

    def bound_log(self) -> None:
        """The manager keeps the log."""
