"""Sources of other distributions, sensors, sending, functions, plans and components, in Dagster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pydantic import ValidationError

from tests.kit.installed import toy_source_installed
from tests.kit.servers import embedded_tubemq
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_client.errors import ConfigError
from tubemq_provider.dagster import (
    PluginResource,
    TubeMQResource,
    build_consume_asset,
    build_lag_check,
    build_lag_sensor,
    build_produce_asset,
    build_ready_sensor,
    build_tubemq_asset,
    build_tubemq_upkeep_job,
    build_window_ops,
)
from tubemq_provider.dagster.components import IngestComponent
from tubemq_provider.sinks.read import read_windows

NAMES: dict[str, Any] = {"topic": "orders", "group": "lake"}
LINES: dict[str, Any] = {**NAMES, "resource_key": "lines"}
CURSOR: dict[str, Any] = {"source": "lines", "initial_position": "earliest", **LINES}

mq = embedded_tubemq([TopicSpec("orders", partitions=2)], switches=Switches(unflushed_records=1))


@pytest.fixture
def topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install a source as another distribution would, with a topic of two partitions."""
    root = tmp_path / "cluster"
    (root / "orders").mkdir(parents=True)
    (root / "orders" / "north.0").write_text("a\nb\n")
    (root / "orders" / "south.0").write_text("c\n")
    with toy_source_installed(tmp_path, monkeypatch):
        yield root / "orders"


@pytest.fixture(params=[None, "files"])
def lines(
    topic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> PluginResource:
    monkeypatch.setenv("OWN_ROOT", str(topic.parent))
    monkeypatch.setenv("EXAMPLE_STORE", str(tmp_path / "store"))
    return PluginResource(
        offset_store=request.param,
        kind="lines",
        cluster="main",
        offsets_dir=str(tmp_path / "offsets"),
        options_from_env={"root": "OWN_ROOT"},
    )


def run(job: dg.JobDefinition, config: dict[str, Any] | None = None, **resources: Any) -> Any:
    return job.execute_in_process(resources=resources, run_config=config)


def metadata(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    (event,) = result.get_asset_materialization_events()
    return {key: value.value for key, value in event.materialization.metadata.items()}


def texts(lake: Path) -> list[str]:
    return sorted(read_windows(lake).to_table()["text"].to_pylist())


def test_a_source_of_a_plugin_has_assets_sensors_checks_and_upkeep(
    topic: Path, lines: PluginResource, lake: Path
) -> None:
    asset = build_tubemq_asset("orders", sink=lake, engine="inline", **CURSOR)
    sensor = build_lag_sensor("more", target=asset, min_lag=2, **LINES)
    check = build_lag_check("orders", max_lag=0, **LINES)
    ready = build_ready_sensor(
        "ready",
        topic="orders",
        target=asset,
        until_offsets={"north.0": 3},
        source="lines",
        resource_key="lines",
    )
    with dg.DagsterInstance.ephemeral() as instance:

        def seen(of: dg.SensorDefinition, cursor: str | None = None) -> tuple[Any, str | None]:
            with dg.build_sensor_context(
                instance, cursor=cursor, resources={"lines": lines}
            ) as context:
                answer: Any = of._raw_fn(context)
                if isinstance(answer, dg.RunRequest):
                    return answer.run_key or "asked", context.cursor
                return answer.skip_message, context.cursor

        assert seen(sensor)[0] == "asked"
        assert "north.0 ends at 2, 3 is wanted" in str(seen(ready)[0])
        given: dict[str, Any] = {"resources": {"lines": lines}, "instance": instance}
        first = metadata(dg.materialize([asset], **given))
        assert (first["records"], first["replayed"]) == (3, False)
        assert texts(lake) == ["a", "b", "c"]

        (topic / "north.0").write_text("a\nb\nd\n")
        skipped, cursor = seen(sensor)
        assert "lag 1, below 2" in str(skipped)
        patient = build_lag_sensor("some", target=asset, min_lag=2, max_wait=0, **LINES)
        assert seen(patient, cursor)[0] == "asked"
        only = dg.AssetSelection.checks(check)
        judged = dg.materialize([asset, check], selection=only, **given)
        assert not judged.get_asset_check_evaluations()[0].passed
        request, cursor = seen(ready)
        assert request.startswith("ready-")
        assert "requested for this condition" in str(seen(ready, cursor)[0])

        upkeep = build_tubemq_upkeep_job("upkeep", sink=lake, **LINES)
        shown = run(upkeep, {"ops": {"change": {"config": {"show": True}}}}, lines=lines)
        (output,) = [e for e in shown.all_events if e.event_type_value == "STEP_OUTPUT"]
        assert output.event_specific_data.metadata["lag"].value == 1
        config = {"offsets": '{"north.0": 3, "south.0": 0}'}
        assert run(upkeep, {"ops": {"change": {"config": config}}}, lines=lines).success
        assert metadata(dg.materialize([asset], **given))["records"] == 1
        assert texts(lake) == ["a", "b", "c", "c"], "the second run reads the window again"


@pytest.mark.parametrize("lines", ["files"], indirect=True)
def test_progress_is_in_the_offset_store_of_a_plugin(
    lines: PluginResource, tmp_path: Path, lake: Path
) -> None:
    asset = build_tubemq_asset("a", sink=lake, **CURSOR)
    assert dg.materialize([asset], resources={"lines": lines}).success
    assert (tmp_path / "store" / "lines%3Amain%2Forders%2Flake" / "cursor.json").is_file()
    assert not (tmp_path / "offsets").exists()
    claiming = build_tubemq_asset("b", sink=lake, claims=True, **CURSOR)
    with pytest.raises(dg.Failure, match="leave out claims=True"):
        dg.materialize([claiming], resources={"lines": lines})


@pytest.mark.parametrize(
    ("word", "problem"),
    [("fils", "did you mean 'files'"), ("ledger", "stores progress in Airflow; leave it out")],
)
def test_a_store_that_a_resource_cannot_have_is_refused(
    topic: Path, word: str, problem: str
) -> None:
    with pytest.raises(ValidationError, match=problem):
        PluginResource(kind="lines", cluster="main", offsets_dir="/o", offset_store=word)


def test_mistakes_are_listed_when_definitions_are_loaded(topic: Path, lake: Path) -> None:
    with pytest.raises(ConfigError, match="consumer_config: deadlin_ms: unknown option; did you"):
        build_tubemq_asset("a", sink=lake, consumer_config={"deadlin_ms": 5}, **NAMES)
    with pytest.raises(ConfigError, match="consumer_config: it is not available for lines"):
        build_tubemq_asset("a", sink=lake, consumer_config={"deadline_ms": 5}, **CURSOR)
    with pytest.raises(ConfigError) as caught:
        build_ready_sensor(
            "r", topic="orders", target="a", partitions=["x"], until_offsets={"y": 1}
        )
    assert "partitions: partition key 'x' is not" in str(caught.value)
    assert "until_offsets: 'y' is not" in str(caught.value)
    with pytest.raises(ConfigError, match="verify has no effect: records go nowhere"):
        build_consume_asset("c", markers=lake, apply_function=print, verify="footers", **NAMES)


def test_a_resource_without_its_variable_says_so(topic: Path) -> None:
    resource = PluginResource(
        kind="lines",
        cluster="main",
        offsets_dir="/offsets",
        options_from_env={"root": "NO_SUCH"},
    )
    with pytest.raises(ConfigError, match="root: the environment has no NO_SUCH"):
        resource.settings()


def test_what_an_asset_sends_a_function_gets_once_also_after_a_failure(
    mq: EmbeddedTubeMQ, resource: TubeMQResource, tmp_path: Path
) -> None:
    sent = build_produce_asset("sent", topic="orders", records=lambda _: [b"a", b"b", b"c"])
    calls: list[tuple[str, list[bytes]]] = []

    def apply(batch: list[Any], window: Any) -> None:
        calls.append((window.window_id, [message.body for message in batch]))
        if len(calls) == 1:
            raise RuntimeError("killed")

    consumed = build_consume_asset(
        "consumed",
        markers=tmp_path / "done",
        apply_function=apply,
        initial_position="earliest",
        consumer_config={"deadline_ms": 9_000, "pool_size": 2},
        **NAMES,
    )
    given: dict[str, Any] = {"resources": {"tubemq": resource}}
    assert metadata(dg.materialize([sent], **given))["records"] == 3
    assert not dg.materialize([consumed], raise_on_error=False, **given).success
    assert metadata(dg.materialize([consumed], **given))["records"] == 3
    assert metadata(dg.materialize([consumed], **given))["records"] == 0
    windows = {window for window, _ in calls}
    assert len(windows) == 1, "the same window again"
    assert sorted(body for _, batch in calls[1:] for body in batch) == [b"a", b"b", b"c"]


def test_a_planned_window_is_read_by_other_ops_and_committed(
    topic: Path, lines: PluginResource, tmp_path: Path
) -> None:
    ops = build_window_ops(
        "lines", markers=tmp_path / "done", source="lines", initial_position="earliest", **LINES
    )
    plans: list[dict[str, Any]] = []

    @dg.op
    def count(plan: dict[str, Any]) -> dict[str, int]:
        plans.append(plan)
        return {key: end - start for key, (start, end) in plan["ranges"].items()}

    @dg.job
    def whole() -> None:
        plan = ops.plan()
        ops.commit(plan, count(plan))

    assert run(whole, lines=lines).output_for_node("lines_commit")["total"] == 3
    assert plans[0]["ranges"] == {"north.0": [0, 2], "south.0": [0, 1]}
    assert run(whole, lines=lines).success
    assert len(plans) == 1, "there is nothing to read, and what comes after is skipped"


def test_ops_refuse_options_of_writing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="partition_by has no effect: records go nowhere"):
        build_window_ops("lines", markers=tmp_path / "done", partition_by=["day"], **LINES)


def test_a_component_is_loaded_from_yaml_and_its_mistakes_are_listed(
    topic: Path, tmp_path: Path, lake: Path
) -> None:
    attributes = {
        "name": "orders",
        **NAMES,
        "source": "lines",
        "sink": str(lake),
        "arguments": {"initial_position": "earliest", "engine": "inline"},
        "resource": {
            "cluster": "main",
            "offsets_dir": str(tmp_path / "offsets"),
            "options": {"root": str(topic.parent)},
        },
    }
    nowhere: Any = None
    component = IngestComponent.from_attributes_dict(attributes=attributes)
    definitions = component.build_defs(nowhere)
    job = definitions.resolve_implicit_global_asset_job_def()
    assert job.execute_in_process().success
    assert texts(lake) == ["a", "b", "c"]
    assert [sensor.name for sensor in definitions.sensors or ()] == ["orders_lag"]

    wrong = {**attributes, "arguments": {"initial_positon": "earliest", "max_records": 0}}
    with pytest.raises(ConfigError) as caught:
        IngestComponent.from_attributes_dict(attributes=wrong).build_defs(nowhere)
    assert "initial_positon: unknown option; did you mean initial_position?" in str(caught.value)


def test_a_component_is_scaffolded_so_that_it_loads(tmp_path: Path) -> None:
    from dagster.components.testing import create_defs_folder_sandbox

    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(component_cls=IngestComponent, defs_path="orders")
        with sandbox.load_component_and_build_defs(defs_path=path) as (component, definitions):
            assert isinstance(component, IngestComponent)
            assert definitions.resolve_asset_graph().get_all_asset_keys() == {dg.AssetKey("orders")}
