"""The ingest operators: one window of a topic into a sink, exactly once.

`TubeMQCursorIngestOperator` reads the next window, `TubeMQWindowIngestOperator` a window of time or
of offsets. They differ only in their arguments, which come from the table of options
(`ingest.arguments`): signature, template fields and parameter list. `base` runs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.ingest.options import parameters, takes
from tubemq_provider.operators.base import IngestOperator, template_fields_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "TubeMQCursorIngestOperator",
    "TubeMQWindowIngestOperator",
]


class TubeMQCursorIngestOperator(IngestOperator):
    """Write the next window of `topic` into a sink: from where the group's last one ended to the
    stable end; each record once, retried or not.

    One task at a time (``max_active_tis_per_dag=1``), or side by side with
    ``offset_store="ledger"``. See `IngestOperator` for what a window is.
    """

    options = parameters(IngestArguments, ["cursor"])
    template_fields: Sequence[str] = template_fields_of(options)
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers = {"sql": "sql"}  # noqa: RUF012 - Airflow's
    mode = "cursor"

    @takes(IngestArguments, options)
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)


class TubeMQWindowIngestOperator(IngestOperator):
    """Write one window of `topic`, of time or of explicit offsets, into a sink: each record once,
    retried or not.

    Windows are independent, and so can be backfilled. See `IngestOperator` for what a window is.
    """

    options = parameters(IngestArguments, ["time"])
    template_fields: Sequence[str] = template_fields_of(options)
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers = {"sql": "sql"}  # noqa: RUF012 - Airflow's
    mode = "time"

    @takes(IngestArguments, options)
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
