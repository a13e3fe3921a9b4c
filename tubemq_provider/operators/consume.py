"""`TubeMQConsumeOperator`: the records of an exact window, handed to a function.

For data too small for a lake, and for what no sink is for. The window is planned, frozen and
accepted as those of the ingest task are, with progress on the same offsets asset; what is written
down here is only which windows are done (`MarkerSink`). What becomes of the records is up to the
function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError
from tubemq_provider._airflow import determine_kwargs
from tubemq_provider.operators.ingest import TubeMQSparkIngestOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tubemq_provider.engines.function import PlannedWindow
    from tubemq_provider.ingest.job import IngestJob
    from tubemq_provider.offsets.registry import TaskStore

__all__ = ["TubeMQConsumeOperator", "TubeMQWindowOperator"]

TAKEN: Final = frozenset(
    {
        "path",
        "sink",
        "exactly_once",
        "staging_root",
        "engine",
        "spark_conf",
        "direct_write",
        "spark_conn_id",
        "spark_work_dir",
        "ship_package",
        "deferrable",
    }
    | {"target_file_bytes", "compression", "decode", "transform", "sql", "verify"}
    | {"partition_by", "max_partitions", "schema_evolution"}
)
"""Arguments of the ingest operator that say where records go, and how: here nowhere."""


class TubeMQWindowOperator(TubeMQSparkIngestOperator):
    """Base of the operators that bring a window nowhere: they note in `markers` that it is done.

    :param markers: where done windows are noted: a directory that all workers share, or ``s3://…``,
        ``gs://…``, ``az://…``. One place for each group.

    The other arguments are those of `TubeMQSparkIngestOperator` that say which records: `topic`,
    `group`, `mode`, `start`, `end`, `initial_position`, the caps, the policies, `offset_store` …
    """

    def __init__(self, *, markers: str | None = None, **kwargs: Any) -> None:
        sink = kwargs.pop("sink", None)  # what a task that was mapped, or copied, gives
        problems = [f"{name} has no effect: records go nowhere" for name in TAKEN & kwargs.keys()]
        if (markers is None) == (sink is None):
            problems.append("markers is needed: where done windows are noted, as '/lake/done'")
        if problems:
            raise ConfigError(sorted(problems), subject="arguments")
        super().__init__(sink=sink or f"markers:{markers}", engine="inline", **kwargs)


class TubeMQConsumeOperator(TubeMQWindowOperator):
    """Hand every record of one window to `apply_function`, in batches.

    The window is the same at every try of the task, whatever has come meanwhile: each record once,
    none twice, in the order of offsets within a partition. When the function has taken the last
    batch, the window is noted as done and progress moves; a retry or a clear after that calls the
    function no more. A task that dies between leaves the window undone: the next try hands over the
    *same* window again, from its beginning, under the same ``window.window_id``. So the function
    takes effect exactly once if what it writes under that id replaces what an earlier try has left,
    and at least once otherwise.

    :param apply_function: called with a list of `tubemq_client.Message` (`body`, `attributes`,
        `stream_id`, `msg_time`, `offset`) and with those values of the context that it names, and
        `window`, the `PlannedWindow`.
    :param batch_size: messages for each call.

    XCom: the result of the window, and ``returned``, what the last call gave.
    """

    ui_color = "#d9ecd0"

    def __init__(
        self,
        *,
        apply_function: Callable[..., Any],
        batch_size: int = 1_000,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not callable(apply_function):
            raise ConfigError("it cannot be called", subject="apply_function")
        if batch_size < 1:
            raise ConfigError(f"{batch_size} is not >= 1", subject="batch_size")
        self.apply_function = apply_function
        self.batch_size = batch_size
        self._returned: Any = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Take the window through all eight steps, with the function as engine."""
        return {**super().execute(context), "returned": self._returned}

    def _prepare(self, context: Context, store: TaskStore, job: IngestJob) -> None:  # noqa: ARG002
        job.hand_to(lambda window: self._apply(window, context))

    def _apply(self, window: PlannedWindow, context: Context) -> None:
        given = {**context, "window": window}
        named = determine_kwargs(self.apply_function, (None,), given)
        for batch in _batches(window.messages(), self.batch_size):
            self._returned = self.apply_function(batch, **named)


def _batches(messages: Iterator[Any], size: int) -> Iterator[Sequence[Any]]:
    while batch := list(islice(messages, size)):
        yield batch
