"""``@task.tubemq_window``: a function that receives a planned window.

Plan, function and commit in one task: the window is frozen before the call, and recorded as done
when the function returns. This module must not know how windows are planned.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.bases.decorator import DecoratedOperator, task_decorator_factory

from tubemq_provider._airflow import determine_kwargs
from tubemq_provider.operators.consume import TubeMQWindowOperator

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.bases.decorator import TaskDecorator

    from tubemq_provider.engines.function import FunctionEngine, PlannedWindow
    from tubemq_provider.ingest.job import IngestJob
    from tubemq_provider.offsets.registry import TaskStore

__all__ = ["tubemq_window_task"]

_WINDOW = "window"


class _WindowDecoratedOperator(DecoratedOperator, TubeMQWindowOperator):
    """Operator that calls the function with `window`, its arguments, and values of the context."""

    custom_operator_name = "@task.tubemq_window"
    template_fields: Sequence[str] = (
        *DecoratedOperator.template_fields,
        *TubeMQWindowOperator.template_fields,
    )
    template_fields_renderers = {  # noqa: RUF012 - Airflow's declaration
        **DecoratedOperator.template_fields_renderers,
        **TubeMQWindowOperator.template_fields_renderers,
    }

    def __init__(self, *, python_callable: Callable[..., Any], **kwargs: Any) -> None:
        signature = inspect.signature(python_callable)
        if _WINDOW not in signature.parameters:
            raise TypeError(
                f"@task.tubemq_window: {python_callable.__name__} must have a parameter "
                f"{_WINDOW!r}, which gets the planned window"
            )
        super().__init__(python_callable=_called_without_window(python_callable), **kwargs)
        self._engine: FunctionEngine | None = None

    def execute(self, context: Context) -> Any:
        """Return the result of the window, with the function's return value."""
        document = TubeMQWindowOperator.execute(self, context)
        return {**document, "returned": self._engine.returned if self._engine else None}

    def _prepare(self, context: Context, store: TaskStore, job: IngestJob) -> None:  # noqa: ARG002
        def call(window: PlannedWindow) -> Any:
            values = {**context, **self.op_kwargs, _WINDOW: window}
            named = determine_kwargs(self.python_callable, self.op_args, values)
            return self.python_callable(*self.op_args, **named)

        self._engine = job.read_with(call)


def _called_without_window(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` with `window` as an optional keyword in the last place.

    Calls in a Dag do not pass it, and their positional arguments are the others, wherever `window`
    is in the signature.
    """
    signature = inspect.signature(function)
    position = list(signature.parameters).index(_WINDOW)
    by_keyword = signature.parameters[_WINDOW].kind is inspect.Parameter.KEYWORD_ONLY

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if by_keyword or position > len(args):
            return function(*args, **kwargs)
        return function(*args[:position], kwargs.pop(_WINDOW), *args[position:], **kwargs)

    others = [p for p in signature.parameters.values() if p.name != _WINDOW]
    rest = [others.pop()] if others and others[-1].kind is inspect.Parameter.VAR_KEYWORD else []
    last = inspect.Parameter(_WINDOW, inspect.Parameter.KEYWORD_ONLY, default=None)
    call.__signature__ = signature.replace(parameters=[*others, last, *rest])  # type: ignore[attr-defined]
    return call


def tubemq_window_task(
    python_callable: Callable[..., Any] | None = None, **kwargs: Any
) -> TaskDecorator:
    """Turn a function into a task that receives one window of a topic, each record once.

    ``@task.tubemq_window(topic="orders", group="report", markers="/lake/done", …)`` takes the
    arguments of `TubeMQWindowOperator`. The function must read the whole window
    (``window.messages()``, ``window.batches()``, ``window.to_pandas()``), or return the number of
    records that it has read of each partition, ``{"1:0": 100}``. Its value is ``returned`` in XCom.
    """
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=False,
        decorated_operator_class=_WindowDecoratedOperator,
        **kwargs,
    )
