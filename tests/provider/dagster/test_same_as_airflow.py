"""Options that Airflow's operators have, for assets: claims, epochs, resolvers, caps, sinks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

from tubemq_client import ClientSettings, Partition, Producer, Record
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_client.errors import ConfigError
from tubemq_provider.dagster import (
    TubeMQResource,
    build_tubemq_asset,
    build_tubemq_upkeep_job,
)
from tubemq_provider.dagster.validation import asset_arguments
from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.offsets.file_claims import FileClaimStore
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sinks.read import published_windows, read_windows
from tubemq_provider.windows.cursor import Position
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.boundary_book import ScopeBook
from tubemq_provider.windows.planning.claims import ClaimBook
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.planning.instants import Resolved
from tubemq_provider.windows.policies import Policies

TOPIC = "orders"
ON_DISK = Switches(unflushed_records=1)
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def mq() -> Iterator[EmbeddedTubeMQ]:
    with EmbeddedTubeMQ(topics=[TopicSpec(TOPIC)], http=False, switches=ON_DISK) as running:
        with Producer(ClientSettings(masters=(running.master_address,))) as producer:
            records = [Record(b"%d" % n, partition=Partition(1, TOPIC, 0)) for n in range(20)]
            list(producer.send_many(TOPIC, records))
        yield running


def asset(sink: object, **options: Any) -> dg.AssetsDefinition:
    given = {"topic": TOPIC, "group": "lake", "sink": sink, "initial_position": "earliest"}
    return build_tubemq_asset("orders", **{**given, **options})


def materialize(asset: dg.AssetsDefinition, resource: TubeMQResource) -> dict[str, Any]:
    result = dg.materialize([asset], resources={"tubemq": resource})
    (event,) = result.get_asset_materialization_events()
    return {key: value.value for key, value in event.materialization.metadata.items()}


def upkeep(
    resource: TubeMQResource,
    sink: Path,
    *,
    claims: bool = False,
    of_epoch: str | None = None,
    **config: Any,
) -> None:
    job = build_tubemq_upkeep_job(
        "upkeep", topic=TOPIC, group="lake", sink=sink, claims=claims, epoch=of_epoch
    )
    job.execute_in_process(
        resources={"tubemq": resource}, run_config={"ops": {"change": {"config": config}}}
    )


def test_an_asset_decodes_into_a_partitioned_table(
    resource: TubeMQResource, tmp_path: Path
) -> None:
    decode = {"format": "csv", "schema": "n bigint", "columns": ["partition"]}
    made = asset(
        f"delta:{tmp_path}/table", decode=decode, partition_by=["partition"], verify="footers"
    )
    assert materialize(made, resource)["records"] == 20
    table = DeltaTable(tmp_path / "table")
    assert table.metadata().partition_columns == ["partition"]
    assert sorted(table.to_pyarrow_table()["n"].to_pylist()) == list(range(20))


def test_the_arguments_of_the_operators_are_those_of_assets() -> None:
    """A new argument of an ingest needs no word here."""
    given: dict[str, Any] = {"topic": TOPIC, "group": "lake", "max_bytes": 10}
    found = asset_arguments("orders", "/lake", None, None, {**given, "compression": "zstd"})

    assert isinstance(found, IngestArguments)
    assert (found.max_bytes, found.compression, found.mode) == (10, "zstd", "cursor")


@pytest.mark.parametrize("claims", [False, True])
def test_caps_and_the_brokers_offsets(
    claims: bool, resource: TubeMQResource, lake: Path, mq: EmbeddedTubeMQ
) -> None:
    capped = asset(lake, claims=claims, max_records=15, commit_to_broker=True)

    windows = [materialize(capped, resource) for _ in range(3)]

    assert [found["records"] for found in windows] == [15, 5, 0]
    assert windows[0]["has_more"]
    assert read_windows(lake).count_rows() == 20


def test_an_explicit_window(resource: TubeMQResource, lake: Path) -> None:
    chosen = {"starting_offsets": {"1:0": 28}, "ending_offsets": {"1:0": 84}}
    explicit = asset(lake, initial_position=None, **chosen)

    assert materialize(explicit, resource)["records"] == 2
    assert materialize(explicit, resource)["replayed"]


def test_claims_of_a_dead_run_are_adopted(resource: TubeMQResource, lake: Path) -> None:
    """A run that is under way keeps its claim; one that Dagster does not know any more does not."""
    sink = ParquetSink(lake)
    scope = WindowScope("tubemq", TOPIC, "lake", sink.identity)
    directory = resource.directory(TOPIC, "lake")
    store = FileClaimStore(directory, task="orders|gone", over=lambda _: True)
    with resource.source(TOPIC, "lake") as source:
        planner = CursorPlanner(scope, source.ends, "earliest", 15)
        plan = planner.plan(Position(0, {"1:0": 0}))
    assert plan is not None
    book = ClaimBook(Position(0, {"1:0": 0})).claim(plan, store.writer, NOON)
    assert book is not None
    store.store_cursor(book.to_document(scope, NOON, store.writer))

    first, second = (materialize(asset(lake, claims=True), resource) for _ in range(2))

    assert (first["records"], second["records"]) == (15, 5)
    assert first["windows"][0]["window_id"] == plan.window_id


def test_a_new_epoch_is_followed_without_configuration(
    resource: TubeMQResource, lake: Path
) -> None:
    assert materialize(asset(lake), resource)["records"] == 20
    upkeep(resource, lake, epoch="2")

    assert materialize(asset(lake, on_other_scope="start_anew"), resource)["records"] == 20
    assert {found.plan.epoch for found in published_windows(lake)} == {"", "2"}
    with pytest.raises(ConfigError, match="it had '', '2'"):
        upkeep(resource, lake, epoch="2")


def test_an_epoch_begins_in_the_store_of_claims(resource: TubeMQResource, lake: Path) -> None:
    materialize(asset(lake, claims=True), resource)
    upkeep(resource, lake, claims=True, epoch="2", begin="stable")

    again = asset(lake, claims=True, on_other_scope="start_anew")
    assert materialize(again, resource)["records"] == 0
    assert json.loads((resource.directory(TOPIC, "lake") / "claims.json").read_text())["past"]


@pytest.mark.parametrize("claims", [False, True])
def test_upkeep_of_progress_that_no_run_reads_is_refused(
    claims: bool, resource: TubeMQResource, lake: Path
) -> None:
    """It said that a life begins, and the asset continued with the one that it had."""
    materialize(asset(lake, claims=claims), resource)
    with pytest.raises(ConfigError, match=f"claims={claims}, as the asset has it"):
        upkeep(resource, lake, claims=not claims, epoch="2")
    upkeep(resource, lake, claims=claims, epoch="2")


def test_brokers_are_retired_and_boundaries_removed(resource: TubeMQResource, lake: Path) -> None:
    sink = ParquetSink(lake)
    scope = WindowScope("tubemq", TOPIC, "lake", sink.identity)
    assert sink.boundaries is not None
    ScopeBook(sink.boundaries, scope).fix(NOON, "r", lambda: Resolved({"1:0": 28}), exact=True)

    upkeep(resource, lake, retire=[3, 2])
    upkeep(resource, lake, unfix="2026-11-21T12:00:00Z")

    book = ScopeBook(sink.boundaries, scope)
    assert (book.retired, book.instants()) == ({"2", "3"}, [])
    with pytest.raises(ConfigError, match="no boundary of this group is fixed"):
        upkeep(resource, lake, unfix="2026-11-21T12:00:00Z")
    with pytest.raises(ConfigError, match="give one of show, offsets, retire, unfix and epoch"):
        upkeep(resource, lake)
    with pytest.raises(ConfigError, match="retire_names 'broker-b': brokers of TubeMQ have number"):
        upkeep(resource, lake, retire_names=["broker-b"])
    upkeep(resource, lake, retire_names=["04"])
    assert ScopeBook(sink.boundaries, scope).retired == {"2", "3", "4"}


def test_upkeep_of_an_asset_that_names_its_epoch_changes_that_epoch(
    resource: TubeMQResource, lake: Path
) -> None:
    sink = ParquetSink(lake)
    assert sink.boundaries is not None
    second = WindowScope("tubemq", TOPIC, "lake", sink.identity, epoch="2")
    ScopeBook(sink.boundaries, second).fix(NOON, "r", lambda: Resolved({"1:0": 28}), exact=True)

    upkeep(resource, lake, of_epoch="2", retire=[3])
    upkeep(resource, lake, of_epoch="2", unfix="2026-11-21T12:00:00Z")

    book = ScopeBook(sink.boundaries, second)
    assert (book.retired, book.instants()) == ({"3"}, [])
    assert not ScopeBook(sink.boundaries, replace(second, epoch="")).retired


def test_an_epoch_begins_at_the_offsets_that_an_error_advises(
    resource: TubeMQResource, lake: Path
) -> None:
    materialize(asset(lake, max_records=15), resource)
    elsewhere = asset(f"{lake}-moved")
    with pytest.raises(dg.Failure) as caught:
        materialize(elsewhere, resource)
    (begin,) = re.findall("--begin '([^']+)'", str(caught.value))

    upkeep(resource, lake, epoch="2", begin=begin)

    assert materialize(elsewhere, resource)["records"] == 5
    with pytest.raises(ConfigError, match="'latest-ish' is neither earliest or stable nor JSON"):
        upkeep(resource, lake, epoch="3", begin="latest-ish")


def test_an_asset_of_another_cluster_is_refused(resource: TubeMQResource, lake: Path) -> None:
    with pytest.raises(dg.Failure, match="the resource is of cluster 'tubemq', asset 'orders' is"):
        materialize(asset(lake, cluster="other"), resource)
    assert materialize(asset(lake, cluster="tubemq"), resource)["records"] == 20


def test_assets_of_explicit_offsets_beside_a_cursor_with_claims_take_claims_too(
    resource: TubeMQResource, lake: Path
) -> None:
    """They follow the life that was begun there."""
    materialize(asset(lake, claims=True), resource)
    upkeep(resource, lake, claims=True, epoch="2")
    chosen = {"starting_offsets": {"1:0": 28}, "ending_offsets": {"1:0": 84}}
    explicit = asset(
        f"{lake}-repair", claims=True, initial_position=None, on_other_scope="start_anew", **chosen
    )
    (window,) = materialize(explicit, resource)["windows"]
    (marker,) = published_windows(f"{lake}-repair")
    assert (window["window_id"], marker.plan.epoch) == (marker.plan.window_id, "2")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"start": NOON}, "start has no effect: partitions_def defines it"),
        ({"offset_store": "ledger"}, "claims=True"),
        ({"policies": Policies(), "gap_policy": "skip"}, "gap_policy: give it in policies"),
        ({"boundaries": {}}, "boundaries need partitions_def"),
        ({"initial_position": "stable"}, "'stable' needs claims=True"),
        ({"initial_position": {"1:0": 0, "1:1": "stable"}}, "'stable' needs claims=True"),
        (
            {"spark_conf": {"a": "b"}, "engine": "inline"},
            "spark_conf has no effect with engine='inline'",
        ),
        ({"spark_conn_id": "lab"}, "spark_conn_id has no effect: spark_conf defines it"),
        ({"cluster": "a/b"}, "cluster: "),
        (
            {
                "initial_position": None,
                "starting_offsets": {"1:0": 0},
                "ending_offsets": {"1:0": 28},
                "new_partition_position": "stable",
            },
            "new_partition_position has no effect",
        ),
        (
            {
                "initial_position": None,
                "resolver": "store_time",
                "partitions_def": dg.HourlyPartitionsDefinition("2026-11-21-08:00"),
            },
            "'store_time' is not available for tubemq",
        ),
    ],
)
def test_what_has_no_effect_is_refused_when_the_asset_is_defined(
    options: dict[str, Any], problem: str, lake: Path
) -> None:
    with pytest.raises(ConfigError, match=problem):
        asset(lake, **options)


def test_a_group_begins_at_the_stable_end_where_runs_claim_windows(
    resource: TubeMQResource, lake: Path
) -> None:
    at_the_end = asset(lake, initial_position="stable", claims=True)
    assert materialize(at_the_end, resource)["records"] == 0


def test_a_custom_sink_is_used_unchanged(resource: TubeMQResource, lake: Path) -> None:
    assert materialize(asset(ParquetSink(lake)), resource)["records"] == 20


@pytest.mark.spark
def test_spark_writes_the_window(resource: TubeMQResource, lake: Path) -> None:
    sparked = asset(lake, engine="session", spark_conf={"spark.master": "local[1]"})

    assert materialize(sparked, resource)["records"] == 20
    assert read_windows(lake).count_rows() == 20


@pytest.mark.spark
def test_spark_in_a_separate_process_writes_the_window(
    resource: TubeMQResource, lake: Path, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    conf = {"spark.master": "local[1]"}
    sparked = asset(lake, engine="submit", spark_conf=conf, spark_work_dir=str(work))

    assert materialize(sparked, resource)["records"] == 20
    assert read_windows(lake).count_rows() == 20
    assert not list(work.iterdir())


def test_an_asset_has_max_files_as_an_option_or_in_its_policies(tmp_path: Path) -> None:
    asset(tmp_path, max_files=5)
    named = {"topic": TOPIC, "group": "lake"}
    checked = asset_arguments("orders", tmp_path, None, Policies(max_files=5), named)
    assert checked.max_files == 5
    with pytest.raises(ConfigError, match="max_files: give it in policies, or without them"):
        asset(tmp_path, max_files=5, policies=Policies(max_files=4))
    with pytest.raises(ConfigError, match="max_files: input should be greater than or equal to 1"):
        asset(tmp_path, policies=Policies(max_files=0))
