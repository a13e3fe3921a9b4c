"""Factory of window runs: the class follows from the planner's kind and the store's abilities.

Callers create runs here and import none of the classes. This module must not decide anything else.
"""

from __future__ import annotations

from typing import Any, Final

from tubemq_provider.windows.plan import WindowKind
from tubemq_provider.windows.protocols import OffsetStore
from tubemq_provider.windows.run._base import Planner
from tubemq_provider.windows.run.claimed_run import ClaimedRun
from tubemq_provider.windows.run.cursor_run import CursorRun
from tubemq_provider.windows.run.standalone_run import StandaloneRun
from tubemq_provider.windows.run.steps import WindowRun

__all__ = ["window_run"]

_RUNS: Final[dict[WindowKind, type[WindowRun]]] = {
    WindowKind.CURSOR: CursorRun,
    WindowKind.TIME: StandaloneRun,
    WindowKind.EXPLICIT: StandaloneRun,
}


def window_run(planner: Planner, store: OffsetStore, *others: Any, **options: Any) -> WindowRun:
    """Return a run of the kind that planner and store allow. Arguments as for `WindowRun`.

    A store that can `change_cursor` is a `ClaimStore`."""
    if planner.kind is WindowKind.CURSOR and hasattr(store, "change_cursor"):
        return ClaimedRun(planner, store, *others, **options)
    return _RUNS[planner.kind](planner, store, *others, **options)
