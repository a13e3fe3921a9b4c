"""`TubeMQConsumeOperator`: pass the records of an exact window to a function.

For data too small for a lake, or for a destination without a sink. The window is planned, frozen
and accepted like that of an ingest task, with progress on the same offsets asset; the task stores
only which windows are done (`MarkerSink`). The effects of the function are the function's own
business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from tubemq_client.errors import ConfigError
from tubemq_provider._airflow import determine_kwargs
from tubemq_provider.ingest.arguments import IngestArguments, no_destination
from tubemq_provider.ingest.options import parameters, takes
from tubemq_provider.operators.base import IngestOperator, template_fields_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tubemq_provider.engines.function import PlannedWindow
    from tubemq_provider.ingest.job import IngestJob
    from tubemq_provider.offsets.registry import TaskStore

__all__ = ["TubeMQConsumeOperator", "TubeMQWindowOperator"]


class TubeMQWindowOperator(IngestOperator):
    """Base of the operators without a sink: `markers` records which windows are done.

    :param markers: where done windows are recorded: a directory that all workers share, or
        ``s3://…``, ``gs://…``, ``az://…``. A separate one for each group.
    :param mode: ``cursor``: the next window, with the arguments of `TubeMQCursorIngestOperator`;
        ``time``: a window of time or of explicit offsets, with those of
        `TubeMQWindowIngestOperator`. Of both only those that select records: `topic`, `group`,
        `start`, `initial_position`, the caps, `policies`, `offset_store` …
    """

    options = parameters(IngestArguments, ["cursor", "time"], writes=False)
    template_fields: Sequence[str] = ("sink", *template_fields_of(options))

    @takes(IngestArguments, options)
    def __init__(self, *, markers: str | None = None, mode: str = "cursor", **kwargs: Any) -> None:
        sink = kwargs.pop("sink", None)  # passed when a task is mapped or copied
        problems = no_destination(kwargs)
        if (markers is None) == (sink is None):
            problems.append("markers is needed: where done windows are noted, as '/lake/done'")
        if problems:
            raise ConfigError(sorted(problems), subject="arguments")
        self.mode = mode
        super().__init__(sink=sink or f"markers:{markers}", engine="inline", **kwargs)

    @property
    def _modes(self) -> tuple[str, ...]:
        return ("cursor", "time")


class TubeMQConsumeOperator(TubeMQWindowOperator):
    """Pass every record of one window to `apply_function`, in batches.

    The window is the same in every try of the task, whatever has arrived meanwhile: each record
    once, in the order of offsets within a partition. After the last batch the window is recorded
    as done and the position advances; a retry or clear after that does not call the function. If
    the task dies before, the next try passes the *same* window again from its beginning, under the
    same ``window.window_id``. So the effect is exactly once if what the function writes under that
    id replaces what an earlier try left, and at least once otherwise.

    :param apply_function: called with a list of `tubemq_client.Message` (`body`, `attributes`,
        `stream_id`, `msg_time`, `offset`), and by keyword with the values of the context that its
        signature names and `window`, the `PlannedWindow`.
    :param batch_size: messages per call.

    XCom: the result of the window, and ``returned``, the value of the last call.
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
        """Run all eight steps of the window, with the function as engine."""
        return {**super().execute(context), "returned": self._returned}

    def _prepare(self, context: Context, store: TaskStore, job: IngestJob) -> None:  # noqa: ARG002
        job.read_with(lambda window: self._apply(window, context))

    def _apply(self, window: PlannedWindow, context: Context) -> None:
        values = {**context, "window": window}
        named = determine_kwargs(self.apply_function, (None,), values)
        for batch in _batches(window.messages(), self.batch_size):
            self._returned = self.apply_function(batch, **named)


def _batches(messages: Iterator[Any], size: int) -> Iterator[Sequence[Any]]:
    while batch := list(islice(messages, size)):
        yield batch
