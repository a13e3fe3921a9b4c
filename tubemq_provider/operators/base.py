"""Base of the ingest operators: one window of a topic into a sink, exactly once.

Turns arguments and a task's context into a window run and executes it. What a window is, what is
retried and which try wins is decided in `windows.run`. `__init__` only checks literals and names
assets, because Airflow parses Dag files all the time: what only a run needs is imported in the run.
The operators are in `ingest`.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from copy import copy
from functools import cache, lru_cache
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.exceptions import AirflowProviderDeprecationWarning
from airflow.sdk import BaseOperator

from tubemq_client import errors
from tubemq_provider._airflow import (
    AirflowSkipException,
    has_asset_state,
    needs_asset_state,
)
from tubemq_provider.assets import declared, offsets_asset, sink_asset, tables_alias
from tubemq_provider.extensions import BUILT_IN
from tubemq_provider.hooks.failures import ErrorContext, fatal_errors_fail_the_task
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.ingest.arguments import (
    OPTIONS,
    IngestArguments,
    begins_at_end,
    names_with_latest,
    sink_template_problems,
)
from tubemq_provider.ingest.options import Option, default_of, described, parameters
from tubemq_provider.ingest.values import VALUES, IngestPolicies, Value, expand_values
from tubemq_provider.links import (
    TubeMQOffsetsLink,
    TubeMQPageLink,
    TubeMQSinkLink,
    TubeMQSparkLink,
    TubeMQTopicLink,
)
from tubemq_provider.operators.clear_detection import is_cleared, is_retried, run_clears, try_number
from tubemq_provider.operators.deferring import TryState
from tubemq_provider.rendered import RefusesEmptyRendering
from tubemq_provider.task_arguments import check_literals, is_mapped, is_template, near_names, parse
from tubemq_provider.windows.spaces import FIRST_SOURCE, space_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tubemq_provider.hooks.by_kind import TopicHook
    from tubemq_provider.ingest.job import IngestJob
    from tubemq_provider.ingest.progress import ProgressLogger
    from tubemq_provider.offsets.registry import TaskStore
    from tubemq_provider.operators.intervals import Interval
    from tubemq_provider.windows.protocols import Engine, Sink, StepObserver
    from tubemq_provider.windows.run.result import WindowResult

__all__ = ["IngestOperator"]

_STATIC = {
    **{
        name: "as it decides how the task is set up"
        for name in IngestArguments.model_fields
        if name not in OPTIONS or not OPTIONS[name].template
    },
    **dict.fromkeys(
        ("topic", "group", "cluster"),
        "it names the offsets asset, which Airflow must know before a run",
    ),
}
"""Arguments that no template may fill in, with the reason."""


_NAMES = tuple(sorted({*IngestArguments.model_fields, "policies"}))
"""Names that the arguments of an ingest have at its operators."""


class IngestOperator(RefusesEmptyRendering, BaseOperator):
    """Base of the ingest operators: common arguments, and `execute`.

    The window is frozen before anything is read; a retry, a clear and a backfill that meets the
    same window deliver the same records, and find them written if they are. Progress is stored on
    the offsets asset ``tubemq:<cluster>/<topic>/<group>``, which becomes inlet and outlet of the
    task; the sink's own asset becomes an outlet where its address is known when the Dag is parsed.

    Templates may fill in every argument in `template_fields`, members of values included; a
    template anywhere else is refused when the Dag is parsed.

    :param tubemq_conn_id: the connection; also the cluster's alias unless `cluster` is given.
    :param source: kind of the topic: a plug-in's word. `tubemq_conn_id` is then a connection whose
        extra has the plug-in's options. Default: the operator's own kind.
    :param policies: `IngestPolicies(gap_policy=…, …)`: what is done in unexpected conditions. By
        default the task fails.

    Events of the sink's asset: one for each window with records, with ``extra["tubemq"]``: topic,
    group, window_id, interval, ranges, records, bytes, place; none for an empty window.

    XCom: the result as a mapping: window_id, hash, ranges, records, total, empty, replayed,
    has_more, position, recovered, gaps, sink_ref, warnings … Beyond 200 partitions `ranges`,
    `records` and the offsets of `position` are left out (`bounded` is then True): the sink's marker
    has them.
    """

    ui_color = "#bfe0d4"
    tubemq_conn_id: str
    mode: str = "cursor"
    source: str = FIRST_SOURCE
    operator_extra_links = (
        TubeMQOffsetsLink(),
        TubeMQPageLink(),
        TubeMQSinkLink(),
        TubeMQTopicLink(),
        TubeMQSparkLink(),
    )
    admin_url: str | None = None
    spark_ui: str | None = None
    result: WindowResult | None = None
    _job: IngestJob | None = None
    _killed: bool = False
    _resumed: bool = False
    """True after a deferral: the same try has begun before, in another process."""
    _warned: bool = False

    options: ClassVar[Mapping[str, Option]] = OPTIONS
    """The arguments that come from the table of options."""
    topic: str
    group: str
    path: str | None
    sink: str | Sink | None
    offset_store: str | Callable[[Mapping[str, Any], Any], TaskStore]
    engine: str | Value | Engine

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "options" in vars(cls):
            cls.__doc__ = f"{cleandoc(cls.__doc__ or '')}\n\n{described(cls.options)}"

    def __init__(
        self,
        *,
        tubemq_conn_id: str = TubeMQHook.default_conn_name,
        cluster: str | None = None,
        policies: IngestPolicies | None = None,
        source: str | None = None,
        **kwargs: Any,
    ) -> None:
        if source is not None:
            self._choose_source(source)
        arguments = {
            name: kwargs.pop(name) if name in kwargs else make() if make else default
            for name, default, make in _names_of_arguments(self._modes)
        }
        chosen = {**(kwargs.get("default_args") or {}), **kwargs}
        try:
            with near_names(type(self), lambda: _written_as(type(self))):
                super().__init__(**kwargs)
        except TypeError as unknown:
            if "Invalid arguments" not in str(unknown):
                raise
            given = {
                **arguments,
                **({"policies": policies} if policies is not None else {}),
                "mode": self.mode,
                "source": self.source,
                "cluster": cluster or tubemq_conn_id,
            }
            others = _problems_of(given)
            raise TypeError("\n".join([str(unknown), *others])) from None
        # Airflow would look at each attribute that is set alone; it finds templates at the end.
        vars(self).update(arguments)
        if _is_own_object(arguments.get("resolver")):
            # Airflow would store and show its `repr`, which may hold what it connects with.
            shown = (name for name in self.template_fields if name != "resolver")
            self.template_fields = tuple(shown)
        self.tubemq_conn_id, self.policies = tubemq_conn_id, policies
        self.cluster = cluster or tubemq_conn_id
        self._serialise(chosen)
        self._check_arguments()
        self.offsets_asset = _offsets_asset(self.cluster, self.topic, self.group, self.source)
        self._declare_assets(self._address)

    @property
    def _address(self) -> str:
        """Address of the sink; empty for a sink that is an object."""
        return self.path or (self.sink if isinstance(self.sink, str) else "") or ""

    @property
    def _modes(self) -> tuple[str, ...]:
        """Modes whose arguments the operator has."""
        return (self.mode,)

    def execute(self, context: Context) -> dict[str, Any]:
        """Run all eight steps of the window; `WindowRun` describes the state after a crash."""
        return self._run_try(context, TryState.fresh(self.execution_timeout))

    def execute_complete(
        self, context: Context, event: Mapping[str, Any], started: float, ticket: dict[str, Any]
    ) -> dict[str, Any]:
        """Resume after the trigger event: run the steps again, which find what the application
        left."""
        self._resumed = True
        return self._run_try(
            context, TryState.resumed(self.execution_timeout, event, started, ticket)
        )

    def _run_try(self, context: Context, try_state: TryState) -> dict[str, Any]:
        from tubemq_provider.hooks.metrics import count_window
        from tubemq_provider.operators.announce import announce, bounded

        failing = fatal_errors_fail_the_task(self.log, about=self._error_context())
        with failing, try_state.defer_when_suspended(self.log), ExitStack() as stack:
            arguments, store, job = self._open_job(context, stack)
            self._prepare(context, store, job)
            try_state.prepare(job, arguments, self.log)
            progress_logger = job.progress_logger(self.log)
            progress_logger.earlier = self._earlier_plan(context, store)
            progress_logger.on_page = lambda page: self._show_spark(context, page)
            progress_logger.on_progress = lambda progress: self._keep_progress(context, progress)
            stack.enter_context(progress_logger.telling_silence())
            result = job.run(
                store,
                attempt=str(context["ti"].id),
                serialised=self._serialised,
                observer=self.observer(context, progress_logger),
                cleared=is_cleared(context, self.retries),
                retried=is_retried(context, self.retries, lambda: _plan_hash(store)),
            )
        progress_logger.done(result)
        self.result = result
        count_window(result, arguments.cluster, space_of(self.source))
        self._report(result, context)
        announce(
            context,
            sink_asset(arguments.destination),
            self.offsets_asset,
            result,
            emit_replayed=arguments.emit_replayed,
        )
        if arguments.skip_if_empty and result.empty and not result.has_news:
            raise AirflowSkipException("there was nothing to read")
        return bounded(result.to_document())

    def _open_job(
        self, context: Context, stack: ExitStack
    ) -> tuple[IngestArguments, TaskStore, IngestJob]:
        """Return the job of this try, built from the rendered arguments; `stack` closes it."""
        from tubemq_provider.ingest.job import needs_interval
        from tubemq_provider.operators.intervals import refuse_interval, run_interval
        from tubemq_provider.operators.job import open_job

        rendered = self._arguments()
        self._warn_of_latest(rendered)
        arguments = parse(IngestArguments, rendered)
        hook = self._hook()
        hook.expect_cluster(arguments.cluster)
        self.admin_url = hook.admin_url
        store = self._store(context)
        if arguments.mode == "cursor":
            refuse_interval(context, planned=lambda: store.load_task_plan() is not None)
        # Resolve the run's interval only if the arguments need it: it may be impossible to tell.
        needs_one = needs_interval(arguments, (None, None))
        interval: Interval = (None, None)
        if needs_one:
            interval = run_interval(
                context, arguments.granularity, longest=arguments.max_run_window, log=self.log
            )
        job = self._job = open_job(arguments, hook, interval, stack, timeline=store.load_timeline)
        if self._killed:
            # Killed before the job existed.
            job.cancel()
        return arguments, store, job

    def _hook(self) -> TopicHook:
        """Return the hook of the connection."""
        if self.source != TubeMQHook.conn_type:
            from tubemq_provider.hooks.plugin import plugin_hook

            return plugin_hook(self.source)(self.tubemq_conn_id)
        return TubeMQHook(self.tubemq_conn_id)

    def _choose_source(self, source: str) -> None:
        """Read another kind of topic. Raises `errors.ConfigError` for an unknown one, and for one
        that has its own operators."""
        if source == self.source:
            return
        space_of(source)
        if self.source != FIRST_SOURCE or source in BUILT_IN["source"]:
            raise errors.ConfigError(
                f"{type(self).__name__} reads {self.source}; for {source!r} use the operator of "
                f"that kind, or the one of {FIRST_SOURCE} for plug-ins",
                subject="source",
            )
        self.source = source

    def _prepare(self, context: Context, store: TaskStore, job: IngestJob) -> None:
        """Set up the job before it runs; for operators that read the window by other means."""

    def _earlier_plan(self, context: Context, store: TaskStore) -> tuple[int, str, str] | None:
        """Return number, id and hash of the window that an earlier try planned, for the log."""
        number = try_number(context)
        plan = store.load_task_plan() if number > 1 else None
        return None if plan is None else (number, str(plan.get("id")), str(plan.get("hash")))

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:  # noqa: ARG002
        """Return the topic as input and the sink's data as output, with rows and bytes.

        None without the OpenLineage provider.
        """
        from tubemq_provider.hooks.lineage import window_lineage

        return window_lineage(self.cluster, self.topic, self._address, self.result, self.source)

    def _error_context(self) -> ErrorContext:
        """Return what an error text is completed with."""
        conn_id = self.tubemq_conn_id
        return ErrorContext(
            conn_id, self.topic, self.group, masters=lambda: TubeMQHook(conn_id).masters
        )

    def on_kill(self) -> None:
        """Cancel the job, also one that has not begun; returns within seconds."""
        self._killed = True
        if self._job is not None:
            self._job.cancel()

    def _show_spark(self, context: Context, page: str) -> None:
        """Publish the link to Spark's page while the page exists.

        Airflow asks for extra links only at the end of the task.
        """
        self.spark_ui = page
        try:
            context["ti"].xcom_push(key=TubeMQSparkLink().xcom_key, value=page)
        except Exception as exc:  # noqa: BLE001 - a link is no reason to fail
            self.log.debug("the link to Spark was not stored: %s", exc)

    def _keep_progress(self, context: Context, progress: dict[str, Any]) -> None:
        """Store the progress of the window in this task's state, for the web page."""
        from tubemq_provider.offsets.asset_state import PROGRESS

        try:
            state: Any = context["task_state_store"]
            state.set(PROGRESS, progress)
        except Exception as exc:  # noqa: BLE001 - nothing depends on it
            self.log.debug("progress was not stored: %s", exc)

    def observer(self, context: Context, progress_logger: ProgressLogger) -> StepObserver:  # noqa: ARG002
        """Return the observer of the run's steps; a subclass may wrap it."""
        return progress_logger

    def _do_render_template_fields(self, parent: Any, *args: Any, **kwargs: Any) -> None:
        """Copy value objects before Airflow renders them in place.

        The author's objects are shared by all runs and by all mapped tasks, for which Airflow calls
        only this method.
        """
        for name, value in vars(self).copy().items() if parent is self else ():
            if isinstance(value, Value):
                setattr(self, name, copy(value))
        super()._do_render_template_fields(parent, *args, **kwargs)

    def _check_arguments(self) -> None:
        """Check the arguments that are not templates."""
        arguments = self._arguments()
        unsafe = sink_template_problems(arguments)
        if "policies" in arguments:
            unsafe.append(
                "policies: give IngestPolicies(gap_policy=…, …) of tubemq_provider.ingest.values, "
                f"not a {type(arguments.pop('policies')).__name__}"
            )
        if not self.tubemq_conn_id:
            unsafe.append("tubemq_conn_id: it is empty; name a connection, or leave it out")
            arguments["cluster"] = self.cluster or TubeMQHook.default_conn_name
        if not is_mapped(self) and not self._serialised and begins_at_end(arguments):
            unsafe.append(
                "initial_position 'stable' needs max_active_tis_per_dag=1: runs would race"
            )
        if self.offset_store != "events" and not has_asset_state():
            store = f"offset_store={self.offset_store!r}"
            unsafe.append(needs_asset_state(store, "say offset_store='events'"))
        check_literals(IngestArguments, arguments, static=_STATIC, problems=unsafe, task=self)
        self._warn_of_latest(arguments)

    def _warn_of_latest(self, arguments: Mapping[str, Any]) -> None:
        """Warn once per task of ``latest``, which here used to mean the stable end.

        Elsewhere it is the end in the broker's memory. Templated values are known only after
        rendering.
        """
        if self._warned or not (names := names_with_latest(arguments)):
            return
        self._warned = True
        warnings.warn(
            f"{', '.join(names)}: 'latest' is an old word for the stable end here; write 'stable', "
            f"which means the same",
            AirflowProviderDeprecationWarning,
            stacklevel=_level_of_author(),
        )

    @property
    def _serialised(self) -> bool:
        """True if two first runs cannot resolve ``stable`` differently."""
        return self.max_active_tis_per_dag == 1 or self.offset_store == "ledger"

    def _serialise(self, chosen: Mapping[str, Any]) -> None:
        """Limit cursor tasks to one active task instance.

        Not if the author chose a limit, nor with the ledger, where concurrent runs claim windows.
        """
        if self.offset_store == "ledger":
            return
        if not is_mapped(self) and self.mode == "cursor" and "max_active_tis_per_dag" not in chosen:
            self.max_active_tis_per_dag = 1

    def _arguments(self) -> dict[str, Any]:
        """Return the operator's arguments, with value objects expanded."""
        held = vars(self)
        arguments = {name: held[name] for name in _NAMES if name in held}
        arguments["mode"], arguments["source"] = self.mode, self.source
        if arguments.get("policies", ...) is None:
            del arguments["policies"]
        return expand_values(arguments)

    def _declare_assets(self, spec: str) -> None:
        """Make the offsets asset inlet and outlet, and the sink's asset an outlet."""
        if is_mapped(self):
            return
        outlets: list[Any] = [self.offsets_asset]
        if spec and not is_template(spec):
            outlets.append(_sink_asset(spec))
        if getattr(self, "routes", None) is not None:
            alias = tables_alias(self.offsets_asset)
            outlets += [] if alias in self.outlets else [alias]
        if not declared(self.offsets_asset, self.inlets):
            self.inlets = [*self.inlets, self.offsets_asset]
        self.outlets = [*self.outlets, *(a for a in outlets if not declared(a, self.outlets))]

    def _store(self, context: Context) -> TaskStore:
        if not all(declared(self.offsets_asset, among) for among in (self.inlets, self.outlets)):
            # Only the author of a mapped task can declare its assets.
            cap = ", and max_active_tis_per_dag=1" if self.mode == "cursor" else ""
            kind = "" if self.source == FIRST_SOURCE else f", {self.source!r}"
            raise errors.ConfigError(
                "the offsets asset must be inlet and outlet of the task: pass inlets=[a], "
                f"outlets=[a]{cap} to .partial(), where a = tubemq_provider.assets.offsets_asset("
                f"{self.cluster!r}, {self.topic!r}, {self.group!r}{kind})",
                subject="assets",
            )
        from tubemq_provider.offsets.document_state import FirstTryState
        from tubemq_provider.offsets.registry import store_for

        state: Any = context.get("task_state_store")
        later = self._resumed or try_number(context) > 1 or is_cleared(context, self.retries)
        if state is not None and not later:
            return store_for(
                self.offset_store,
                {**context, "task_state_store": FirstTryState(state)},
                self.offsets_asset,
            )
        return store_for(self.offset_store, context, self.offsets_asset)

    def _report(self, result: WindowResult, context: Context) -> None:
        """Log one structured line, which can be searched later."""
        line = {
            "records": result.total,
            "window_id": result.window_id,
            "empty": result.empty,
            "replayed": result.replayed,
            "recovered": list(result.recovered),
            "try_number": context["ti"].try_number,
            "clear_number": run_clears(context),
            "store": self.offset_store,
            "engine": result.engine,
            "hash": result.hash,
        }
        for warning in result.warnings:
            self.log.warning("%s", warning)
        self.log.info("window done: %s", json.dumps(line))


def _plan_hash(store: TaskStore) -> str | None:
    """Return the hash of the plan that an earlier try of the task has stored, or None."""
    document: Any = store.load_task_plan()
    return document.get("hash") if isinstance(document, Mapping) else None


# A Dag file may create thousands of tasks, many with the same assets.
_offsets_asset = lru_cache(maxsize=256)(offsets_asset)
_sink_asset = lru_cache(maxsize=256)(sink_asset)


@cache
def _names_of_arguments(modes: tuple[str, ...]) -> tuple[tuple[str, Any, Any], ...]:
    """Return the arguments that an operator of these modes sets from the table, each with its
    default, or with what makes one."""
    fields = IngestArguments.model_fields
    names = sorted(parameters(IngestArguments, modes).keys() - {"cluster"})
    return tuple((name, default_of(fields[name]), fields[name].default_factory) for name in names)


@cache
def _inside_of_values(kind: type[IngestOperator]) -> dict[str, str]:
    """Return how to write arguments that `kind` accepts only as members of a value object."""
    spellings: dict[str, list[str]] = {}
    for holder, values in VALUES.items():
        for value in values if holder in kind.template_fields else ():
            for member in value().template_fields:
                text = f"{holder}={value.__name__}({member}=…)"
                spellings.setdefault(value.names.get(member, member), []).append(text)
    return {name: " or ".join(texts) for name, texts in spellings.items()}


def _is_own_object(value: object) -> bool:
    """Return True for an object that does not say itself what Airflow may store of it."""
    plain = value is None or isinstance(value, str | Value)
    return not plain and not is_template(value) and not hasattr(value, "serialize")


def _written_as(kind: type[IngestOperator]) -> dict[str, str]:
    """Return what to do about arguments that operators of `kind` do not take, by name."""
    other, holder = ("time", "Window") if kind.mode == "cursor" else ("cursor", "Cursor")
    elsewhere = parameters(IngestArguments, [other]).keys() - kind.options.keys()
    prefix = kind.__name__.partition("Cursor")[0].partition("Window")[0]
    texts = dict.fromkeys(elsewhere, f"an argument of {prefix}{holder}IngestOperator")
    inside = _inside_of_values(kind)
    texts["mode"] = (
        f"{prefix}CursorIngestOperator follows a group, {prefix}WindowIngestOperator has windows "
        f"of time or of offsets"
    )
    return texts | {name: f"give it as {text}" for name, text in inside.items()}


def _problems_of(arguments: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with arguments of an operator that cannot be made anyway."""
    try:
        check_literals(IngestArguments, expand_values(arguments), static=_STATIC)
    except errors.ConfigError as error:
        return error.problems
    return []


def template_fields_of(options: Mapping[str, Option]) -> tuple[str, ...]:
    """Return the template fields of an operator with these options."""
    names = (name for name, option in options.items() if option.template)
    return (*names, "tubemq_conn_id", "policies")


def _level_of_author() -> int:
    """Return the stack level of the Dag's author, for a warning of the caller."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - as `warnings` counts
    while frame.f_back and frame.f_globals["__name__"].startswith(("tubemq_provider.", "airflow.")):
        level, frame = level + 1, frame.f_back
    return level
