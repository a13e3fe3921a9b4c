"""Ops that plan a window and commit it, for graphs whose other ops read the records.

The counterpart of Airflow's plan and commit operators: `plan` freezes the offsets, ops of the user
read them, and `commit` records the window as done. Without a commit the next run plans the same
window again.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from os import PathLike, fspath
from typing import Any, NamedTuple

import dagster as dg

from tubemq_client.errors import ConfigError
from tubemq_provider.dagster.ingest import Ingest, failing_in_dagsters_terms, window_metadata
from tubemq_provider.dagster.resource import SourceResource
from tubemq_provider.dagster.validation import asset_arguments
from tubemq_provider.ingest.arguments import no_destination
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.windows.spaces import space_of


class WindowOps(NamedTuple):
    """Ops of a window: `plan` returns its document, `commit` takes it with counts of records."""

    plan: dg.OpDefinition
    commit: dg.OpDefinition


def build_window_ops(
    name: str,
    *,
    topic: str,
    group: str,
    markers: str | PathLike[str],
    resource_key: str = "tubemq",
    max_retries: int = 20,
    **options: Any,
) -> WindowOps:
    """Return the ops ``<name>_plan`` and ``<name>_commit``.

    The first returns ``{"window_id", "hash", "ranges", "starting_offsets", "ending_offsets", …}``,
    as Airflow's operator does, and has no output if there is nothing to read, so that what comes
    after it is skipped. The second takes that document as ``plan`` and the numbers of records by
    partition as ``records``, checks them against the plan, records the window in `markers` and
    advances the position.

    `options` are arguments of `build_tubemq_asset` that select records of a cursor window. Raises
    `ConfigError` at once, with every problem.
    """
    if problems := no_destination(options):
        raise ConfigError(problems, subject=f"ops {name!r}")
    sink = f"markers:{fspath(markers)}"
    given = {"topic": topic, "group": group, "engine": "inline", **options}
    arguments = asset_arguments(name, sink, None, None, given)
    if arguments.mode != "cursor":
        raise ConfigError("ops plan windows of a cursor only", subject=f"ops {name!r}")
    ingest = Ingest(name, arguments, sink_for(sink), claims=False, open_table=_no_tables)

    @dg.op(
        name=f"{name}_plan",
        required_resource_keys={resource_key},
        out=dg.Out(is_required=False, dagster_type=dict),
    )
    def plan(context: dg.OpExecutionContext) -> Iterator[dg.Output[dict[str, Any]]]:
        resource: SourceResource = getattr(context.resources, resource_key)
        store = ingest.store(resource, context.instance, name)
        with failing_in_dagsters_terms(max_retries), ExitStack() as stack:
            job = ingest.job(resource, (None, None), stack)
            planned = job.plan(
                store,
                attempt=f"{context.run_id}-{context.retry_number}",
                serialised=False,
                observer=job.progress_logger(context.log),
            )
        document = planned.document()
        if not document["entries"] or planned.marker is not None:
            context.log.info("there is nothing to read")
            return
        yield dg.Output(
            document,
            metadata={"window": document["window_id"], "entries": document["entries"]},
        )

    @dg.op(name=f"{name}_commit", required_resource_keys={resource_key})
    def commit(
        context: dg.OpExecutionContext, plan: dict[str, Any], records: dict[str, int]
    ) -> dict[str, Any]:
        resource: SourceResource = getattr(context.resources, resource_key)
        store = ingest.store(resource, context.instance, name)
        with failing_in_dagsters_terms(max_retries), ExitStack() as stack:
            job = ingest.job(resource, (None, None), stack)
            job.use_counts(store, plan, records)
            result = job.run(
                store,
                attempt=f"{context.run_id}-{context.retry_number}",
                serialised=False,
                observer=job.progress_logger(context.log),
                retried=True,
            )
        context.add_output_metadata(window_metadata(result, space_of(arguments.source).step))
        return result.to_document()

    return WindowOps(plan, commit)


def _no_tables(*_: Any) -> Any:
    raise ConfigError("ops have no routes", subject="routes")
