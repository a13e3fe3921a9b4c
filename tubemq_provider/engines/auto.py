"""`AutoEngine`: small windows in this process, large ones in Spark.

Starting Spark takes half a minute; reading a few thousand records takes a second. The size of a
window is known once it is planned, so the choice is made per plan, and an engine is created only
when it is chosen. Both write the same files and counts.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from typing import Final

from tubemq_provider.windows.errors import WindowError
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import Engine, IngestCounts, IngestWatch, Staging

__all__ = ["INLINE_UP_TO", "AutoEngine"]

INLINE_UP_TO: Final = 2_000_000
"""Index entries of logs, an upper bound on records, that one process reads in about the time that
Spark takes to start."""


class AutoEngine(Engine):
    """Engine that chooses between two others for each plan; see `Engine`. Without pyspark it is
    always the inline one.

    `name` is that of the engine chosen last, ``auto`` before the first choice.
    """

    def __init__(
        self,
        inline: Callable[[], Engine],
        spark: Callable[[], Engine],
        *,
        inline_up_to: int = INLINE_UP_TO,
    ) -> None:
        self._inline = inline
        self._spark = spark
        self._inline_up_to = inline_up_to
        self._chosen: Engine | None = None
        self._cancelled = threading.Event()

    @property
    def name(self) -> str:
        """``inline``, ``session``, or ``auto`` before the first read."""
        return self._chosen.name if self._chosen is not None else "auto"

    def ingest(self, plan: WindowPlan, staging: Staging, watch: IngestWatch) -> IngestCounts:
        """Choose an engine for `plan` and run it. Raises `WindowError` after `cancel`."""
        small = (
            plan.record_limit <= self._inline_up_to or importlib.util.find_spec("pyspark") is None
        )
        self._chosen = engine = self._inline() if small else self._spark()
        if self._cancelled.is_set():
            raise WindowError(f"ingest of window {plan.window_id} was cancelled")
        watch.progress(f"engine {engine.name} chosen")
        return engine.ingest(plan, staging, watch)

    def cancel(self) -> None:
        """Cancel the chosen engine, or the one chosen later."""
        self._cancelled.set()
        if self._chosen is not None:
            self._chosen.cancel()
