"""`AutoEngine`: small windows in this process, large ones in Spark.

Starting Spark costs half a minute, and reading a few thousand records a second. Which one a window
is, is known when its plan is: so the choice is made then, and either engine is made only if it is
chosen. Both write the same files and counts.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from typing import Any, Final

from tubemq_provider.windows.errors import WindowError
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import Engine, IngestCounts, Progress, Staging

__all__ = ["INLINE_UP_TO", "AutoEngine"]

INLINE_UP_TO: Final = 2_000_000
"""Index entries, an upper bound on records, that one process reads in about the time that Spark
takes to start."""


class AutoEngine:
    """Chooses between two engines for each plan; see `Engine`. Without pyspark there is no choice.

    Its `name` is that of the engine that was chosen last, ``auto`` before.
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
        self.on_read: Any = None
        self.on_tasks: Any = None

    @property
    def name(self) -> str:
        """``inline``, ``session``, or ``auto`` while nothing was read."""
        return self._chosen.name if self._chosen is not None else "auto"

    @property
    def ui_url(self) -> str | None:
        """Spark's page, if Spark was chosen."""
        return getattr(self._chosen, "ui_url", None)

    def ingest(self, plan: WindowPlan, staging: Staging, progress: Progress) -> IngestCounts:
        """What the chosen engine does."""
        small = plan.entries <= self._inline_up_to or importlib.util.find_spec("pyspark") is None
        engine: Any = self._inline() if small else self._spark()
        self._chosen = engine
        if self._cancelled.is_set():
            raise WindowError(f"ingest of window {plan.window_id} was cancelled")
        # Inline tells of records, Spark of tasks.
        for observer in ("on_read", "on_tasks"):
            if hasattr(engine, observer):
                setattr(engine, observer, getattr(self, observer))
        progress(f"engine {engine.name} chosen")
        counts: IngestCounts = engine.ingest(plan, staging, progress)
        return counts

    def cancel(self) -> None:
        """End the chosen engine's work, or what is chosen later."""
        self._cancelled.set()
        if self._chosen is not None:
            self._chosen.cancel()
