"""Complete intervals of a sink: no hole, from any runs, and no duplicate."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pendulum
import pytest

from tubemq_client.errors import ConfigError
from tubemq_provider._airflow import AirflowFailException
from tubemq_provider.sensors import coverage
from tubemq_provider.sensors.coverage import TubeMQCoverageSensor
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.protocols import IngestCounts, Sink

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

DAY = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def write(sink: Sink, hour: int, group: str = "lake", *, hours: int = 1, epoch: str = "") -> None:
    scope = WindowScope("c1", "orders", group, sink.identity, epoch=epoch)
    start = DAY + hour * HOUR
    ranges = {"1:0": (hour * 28, (hour + hours) * 28)}
    plan = WindowPlan.for_time(scope, start, start + hours * HOUR, ranges)
    staging = sink.begin(plan, "a")
    sink.publish(staging, plan, IngestCounts({"1:0": 1}), lambda _: None)


def sensor(place: str, **arguments: Any) -> TubeMQCoverageSensor:
    given = {"start": DAY, "end": DAY + 3 * HOUR, "group": "lake", **arguments}
    return TubeMQCoverageSensor(task_id="c", sink=place, **given)


def test_it_waits_for_every_hour_from_any_writer(tmp_path: Path) -> None:
    place = f"markers:{tmp_path}/done"
    sink = sink_for(place)
    task = sensor(place)
    assert task.mode == "reschedule", "it holds no slot while it waits"
    assert not task.poke({}).is_done  # type: ignore[arg-type]
    for hour in (2, 0):
        write(sink, hour)
    write(sink, 1, "another")
    found = task.poke({})  # type: ignore[arg-type]
    assert not found.is_done
    assert found.xcom_value["missing"] == [["2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"]]
    write(sink, 1)
    assert task.poke({}).is_done  # type: ignore[arg-type]
    assert not sensor(place, end=DAY + 4 * HOUR).poke({}).is_done  # type: ignore[arg-type]
    airflows = {"start": pendulum.instance(DAY), "end": pendulum.instance(DAY).add(hours=3)}
    assert sensor(place, **airflows).poke({}).is_done  # type: ignore[arg-type]


def test_a_topic_rendered_as_none_is_refused(tmp_path: Path) -> None:
    """A topic of that name was waited for; and any topic of the sink would have done."""
    place = f"markers:{tmp_path}/done"
    write(sink_for(place), 0, hours=3)
    task = sensor(place, topic="{{ params.topic }}", group="{{ params.group }}")
    with pytest.raises(AirflowFailException, match="topic: its template rendered to nothing"):
        task.render_template_fields({"params": {"topic": None, "group": "lake"}})  # type: ignore[typeddict-item]


def test_a_database_that_does_not_answer_is_waited_for(tmp_path: Path) -> None:
    away = sensor(f"sqlite:///{tmp_path}/mount/lake.db?table=orders")
    assert not away.poke({}).is_done  # type: ignore[arg-type]


def test_a_store_that_does_not_answer_is_waited_for_and_one_that_refuses_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patched, as a client of object stores retries for seconds before it reports an error."""

    def failing(error: OSError) -> None:
        def listed(_: Any) -> Any:
            raise error

        monkeypatch.setattr(coverage, "published_windows", listed)

    task = sensor(f"markers:{tmp_path}/done")
    failing(OSError("s3://lake/orders: GenericError of the object store"))
    assert not task.poke({}).is_done  # type: ignore[arg-type]
    failing(PermissionError("s3://lake/orders: 403"))
    with pytest.raises(PermissionError):
        task.poke({})  # type: ignore[arg-type]


def test_a_day_on_which_an_epoch_began_is_complete_with_both(tmp_path: Path) -> None:
    place = f"markers:{tmp_path}/done"
    sink = sink_for(place)
    task = sensor(place)
    write(sink, 0)
    write(sink, 2, epoch="new")
    assert not task.poke({}).is_done  # type: ignore[arg-type]
    write(sink, 1, epoch="new")
    assert task.poke({}).is_done  # type: ignore[arg-type]
    write(sink, 0, hours=2, epoch="new")
    assert not task.poke({}).is_done, "there twice"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"end": DAY}, "is not before end"),
        ({"start": "2026-01-01"}, "start.*: .*has no time zone; write 2026-01-01T00:00:00Z"),
        ({"end": DAY.replace(tzinfo=None)}, "end.*: .*has no time zone; .* tzinfo=UTC"),
        ({"sink": "lake"}, "relative"),
        ({"sink": "append:/lake"}, "no markers"),
    ],
)
def test_mistakes_show_when_the_dag_is_parsed(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        sensor(**{"place": wrong.pop("sink", "/lake"), **wrong})
