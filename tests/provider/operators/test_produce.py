"""Records sent from a Dag: every record has a receipt, or the task fails and a retry continues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from tubemq_client import OffsetRange, Partition, Record
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_client.errors import ConfigError
from tubemq_provider.assets import topic_asset
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.operators.produce import TubeMQProduceOperator
from tubemq_provider.operators.records_to_send import of_file, of_values
from tubemq_provider.sensors.ready import TubeMQPartitionReadySensor

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60), pytest.mark.usefixtures("hook")]

TOPIC = "orders"


def produce(**arguments: Any) -> TubeMQProduceOperator:
    given = {"topic": TOPIC, "cluster": "test", **arguments}
    return TubeMQProduceOperator(task_id="send", **given)


def execute(task: TubeMQProduceOperator, state: dict[str, Any] | None = None) -> dict[str, Any]:
    context = {"task_state_store": State(state), "ds": "2026-01-01", "run_id": "manual"}
    done: dict[str, Any] = type(task).execute.__wrapped__(task, context)  # type: ignore[attr-defined]
    return done


class State(dict[str, Any]):
    """A task's state, which outlives tries."""

    def __init__(self, kept: dict[str, Any] | None) -> None:
        self.kept = {} if kept is None else kept

    def get(self, key: str, default: Any = None) -> Any:
        return self.kept.get(key, default)

    def set(self, key: str, value: Any) -> None:
        self.kept[key] = value

    def delete(self, key: str) -> None:
        self.kept.pop(key, None)


def stored(mq: EmbeddedTubeMQ, hook: TubeMQHook) -> list[bytes]:
    for broker_id in (1, 2):
        for store in (0, 1):
            mq.broker(broker_id).store(TOPIC, store).flush()
    ends = hook.ends(TOPIC, "lake")
    ranges = [OffsetRange(partition, 0, found.max_offset) for partition, found in ends.items()]
    return sorted(m.body for r in ranges for m in hook.read_range(r, group="lake"))


def test_each_record_has_a_receipt(mq: EmbeddedTubeMQ, hook: TubeMQHook) -> None:
    task = produce(records=[{"n": 1}, "two", b"three", Record(b"four"), 5])
    assert task.outlets == [topic_asset("test", TOPIC)]
    done = execute(task)
    assert (done["topic"], done["records"], done["continued_after"]) == (TOPIC, 5, 0)
    assert done["bytes"] == len(b'{"n":1}twothreefour5')
    assert stored(mq, hook) == sorted([b'{"n":1}', b"two", b"three", b"four", b"5"])
    assert {key: end for key, end in done["ends"].items() if end}


def test_a_function_gets_what_it_names_of_the_context(mq: EmbeddedTubeMQ, hook: TubeMQHook) -> None:
    def rows(ds: str) -> Iterator[dict[str, str]]:
        yield {"day": ds}

    assert execute(produce(producer_function=rows))["records"] == 1
    assert stored(mq, hook) == [b'{"day":"2026-01-01"}']


@pytest.mark.parametrize(
    ("name", "text", "bodies"),
    [
        (
            "a.csv",
            "id,city\n1,Köln\n2,Ulm\n",
            ['{"id":"1","city":"Köln"}', '{"id":"2","city":"Ulm"}'],
        ),
        ("a.jsonl", '{"id": 1}\n\n{"id": 2}\n', ['{"id": 1}', '{"id": 2}']),
        ("a.txt", "one\ntwo", ["one", "two"]),
    ],
)
def test_a_row_of_a_file_is_a_record(
    name: str, text: str, bodies: list[str], tmp_path: Path, mq: EmbeddedTubeMQ, hook: TubeMQHook
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert execute(produce(file=str(tmp_path / name)))["records"] == 2
    assert stored(mq, hook) == sorted(body.encode() for body in bodies)


def test_a_file_is_sent_as_it_stands(tmp_path: Path) -> None:
    """Whatever a spreadsheet puts before the first column, and however long numbers are."""
    table, lines = tmp_path / "a.csv", tmp_path / "a.jsonl"
    table.write_bytes(b"\xef\xbb\xbfid,city\r\n1,Ulm\r\n")
    (row,) = of_file(str(table), "id")
    assert (row.body, row.stream_id) == (b'{"id":"1","city":"Ulm"}', "1")
    line = '{"s": "a",  "n": 0.12345678901234567890, "m": 1e400}'
    lines.write_text(f"\n{line}\n", encoding="utf-8")
    (row,) = of_file(str(lines), "s")
    assert (row.body, row.stream_id) == (line.encode(), "a")


@pytest.mark.parametrize(
    ("name", "text", "stream", "problem"),
    [
        ("a.csv", "id,city\n1,Ulm\n2\n", None, "row 2 has not as many fields as the header"),
        ("a.csv", "id,city\n1,Ulm,x\n", None, "row 1 has not as many fields as the header"),
        ("a.csv", "id,city\n1,\n", "city", "record 0 has an empty field 'city'"),
        ("a.csv", f"id\n{'x' * 200_000}\n", None, "a.csv cannot be read: field larger"),
        ("a.jsonl", '{"s": null}\n', "s", "record 0 has an empty field 's'"),
        ("a.jsonl", '\n{"s": NaN}\n', "s", "a.jsonl, line 2: NaN is no JSON"),
    ],
)
def test_rows_that_would_be_sent_as_something_else_are_refused(
    name: str, text: str, stream: str | None, problem: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=problem):
        list(of_file(str(file), stream))


@pytest.mark.parametrize("value", [{"n": float("nan")}, [float("-inf")], {"s": None}])
def test_values_outside_json_and_streams_without_a_name_are_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="record 0"):
        list(of_values([value], "s" if "s" in value else None))


def test_an_undelivered_record_fails_the_task_and_a_retry_continues_there(
    mq: EmbeddedTubeMQ, hook: TubeMQHook
) -> None:
    state: dict[str, Any] = {}
    good = [f"{n}" for n in range(20)]
    with pytest.raises(AirflowFailException, match="record 20 is object"):
        execute(produce(records=[*good, object()]), state)
    assert state["tubemq_sent"] == 20
    done = execute(produce(records=[*good, "mended"]), state)
    assert (done["records"], done["continued_after"]) == (1, 20)
    assert stored(mq, hook) == sorted(body.encode() for body in [*good, "mended"])
    assert state == {}, "a cleared task sends again"


@pytest.mark.parametrize(
    "mended", [["c", "a", "b", "d"], ["a"], ["a", Record(b"b", stream_id="s")]]
)
def test_changed_records_are_all_sent(
    mended: list[Any], mq: EmbeddedTubeMQ, hook: TubeMQHook
) -> None:
    """The producing task was fixed and cleared too: otherwise the first records would be
    skipped."""
    state: dict[str, Any] = {}
    with pytest.raises(AirflowFailException, match="record 2 is object"):
        execute(produce(records=["a", "b", object()]), state)
    done = execute(produce(records=mended), state)
    assert (done["records"], done["continued_after"]) == (len(mended), 0)
    sent = [item.body if isinstance(item, Record) else item.encode() for item in mended]
    assert stored(mq, hook) == sorted([b"a", b"b", *sent])
    assert state == {}


def test_progress_after_a_crash_and_of_earlier_releases_is_resumed(
    hook: TubeMQHook, mq: EmbeddedTubeMQ
) -> None:
    state: dict[str, Any] = {}
    with pytest.raises(AirflowFailException):
        execute(produce(records=["a", "b", object()]), state)
    assert execute(produce(records=["a", "b", "c"]), {**state, "tubemq_sent": 1})["records"] == 1
    del state["tubemq_trail"]
    assert execute(produce(records=["a", "b", "d"]), state)["records"] == 1
    assert stored(mq, hook) == [b"a", b"b", b"c", b"d"]


def test_ends_are_those_of_all_tries(hook: TubeMQHook) -> None:
    state: dict[str, Any] = {}
    good = [f"{n}" for n in range(20)]
    with pytest.raises(AirflowFailException):
        execute(produce(records=[*good, object()]), state)
    kept = dict(state)
    everything = {
        p.key: found.max_offset for p, found in hook.ends(TOPIC, "lake", stable=False).items()
    }
    nothing_left = execute(produce(records=good), state)
    assert (nothing_left["records"], nothing_left["ends"]) == (0, kept["tubemq_ends"])
    for key, end in nothing_left["ends"].items():
        assert 0 < end <= everything[key]
    ready = TubeMQPartitionReadySensor(
        task_id="ready", topic=TOPIC, until_offsets=execute(produce(records=[]))["ends"]
    )
    assert ready.poke({}).is_done


def test_a_missing_topic_fails_the_task() -> None:
    with pytest.raises(AirflowFailException, match="UnknownTopic"):
        execute(produce(topic="oders", records=["x"]))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "give one of records, producer_function and file"),
        ({"records": ["a"], "file": "/a.csv"}, "give one of"),
        ({"file": "/a.parquet"}, "neither .csv nor .jsonl nor .txt"),
        ({"records": ["a"], "on_retry": "maybe"}, "on_retry"),
        ({"records": (text for text in "ab")}, "records: a generator can be read only once"),
        ({"records": ["a"], "topic": "{{ ds }}"}, "topic: cannot be a template"),
    ],
)
def test_mistakes_show_when_the_dag_is_parsed(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        produce(**wrong)


def test_a_template_may_give_the_whole_name_of_a_file(tmp_path: Path) -> None:
    task = produce(file="{{ params.file }}")
    (tmp_path / "rows.txt").write_text("a\nb\n")
    task.file = str(tmp_path / "rows.txt")
    assert execute(task)["records"] == 2
    task.file = str(tmp_path / "rows.parquet")
    with pytest.raises(AirflowFailException, match=r"neither \.csv nor \.jsonl nor \.txt"):
        execute(task)


def test_a_field_can_name_the_stream(mq: EmbeddedTubeMQ, hook: TubeMQHook) -> None:
    execute(produce(records=[{"kind": "a"}, {"kind": "b"}], stream_field="kind"))
    stored(mq, hook)
    ends = hook.ends(TOPIC, "lake")
    ranges = [OffsetRange(partition, 0, found.max_offset) for partition, found in ends.items()]
    assert sorted(
        (m.stream_id, m.body) for r in ranges for m in hook.read_range(r, group="lake")
    ) == [("a", b'{"kind":"a"}'), ("b", b'{"kind":"b"}')]
    with pytest.raises(AirflowFailException, match="record 0 has no field 'kind'"):
        execute(produce(records=["text"], stream_field="kind"))
    assert Partition.from_key(TOPIC, "1:0") in ends
