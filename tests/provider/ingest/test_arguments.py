"""Arguments of a Dag author: accepted forms, and mistakes listed early and together."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tubemq_client.errors import ConfigError
from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.ingest.values import Spark, SparkConnect, SparkSubmit, Value, expand_values
from tubemq_provider.sinks import factory
from tubemq_provider.task_arguments import check_literals, is_template, offsets_for_topic, parse

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

BASE: dict[str, Any] = {"topic": "orders", "group": "lake", "path": "/lake", "cluster": "prod"}
BOUNDARIES = {"2026-01-01T00:00:00Z": {"orders": {"1:0": 0}}}
EXPLICIT = {"mode": "time", "starting_offsets": {"1:0": 28}, "ending_offsets": {"1:0": 56}}


def problems(**arguments: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(IngestArguments, {**BASE, **arguments})
    return str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"initial_position": "earliest", "max_records": 1000, "filters": ["paid"]},
        {"initial_position": {"orders": {"1:0": 28, "1:1": "earliest"}}},
        {"mode": "time", "boundaries": BOUNDARIES},
        {"mode": "time", "boundaries": "/data/boundaries.json"},
        {"mode": "time", "boundaries": BOUNDARIES, "start": "", "end": "None"},
        {"mode": "time", "starting_offsets": {"1:0": 0}, "ending_offsets": '{"1:0": "stable"}'},
        {"partition_by": "day(msg_time)"},
        {"partition_by": '["partition", "hour(msg_time)"]', "max_partitions": 5},
        {"max_files": "20"},
        {"engine": "session", "spark_conf": {"spark.master": "local[2]"}},
    ],
)
def test_accepted(arguments: dict[str, Any]) -> None:
    assert parse(IngestArguments, {**BASE, **arguments}).topic == "orders"


def test_text_of_templates_is_accepted() -> None:
    """A template inside of a mapping, a number of seconds, and None."""
    found = parse(
        IngestArguments,
        {
            **BASE,
            "initial_position": {"1:0": "2800", "1:1": "earliest"},
            "max_duration": "600",
            "staging_root": "None",
            "sink_conn_id": "None",
        },
    )
    assert found.sink_conn_id is None
    assert found.offsets("initial_position") == {"1:0": 2800, "1:1": "earliest"}
    assert found.max_duration == timedelta(minutes=10)
    assert found.staging_root is None
    assert "staging_root: 'tries' is relative" in problems(staging_root="tries")


@pytest.mark.parametrize("name", ["filters", "partition_by"])
def test_iterators_are_refused(name: str) -> None:
    """The Dag's parsing had read it: the task took a topic without its filters."""
    given = {**BASE, name: (text for text in ["partition"])}
    with pytest.raises(ConfigError, match=f"{name}: a generator can be read only once"):
        check_literals(IngestArguments, given, static={})


def test_the_resolver_follows_from_what_is_given() -> None:
    by_time = parse(IngestArguments, {**BASE, "mode": "time", "boundaries": BOUNDARIES})
    given = {"mode": "time", "starting_offsets": {"1:0": 0}, "ending_offsets": {"1:0": 28}}
    assert by_time.by == "boundaries"
    assert parse(IngestArguments, {**BASE, **given}).by == "explicit"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"mode": "cursor", "boundaries": BOUNDARIES}, "boundaries has no effect"),
        ({"mode": "time"}, "boundaries is needed"),
        ({"mode": "time", "boundaries": {}, "max_records": 5}, "max_records has no effect"),
        ({"mode": "time", "starting_offsets": {"1:0": 0}}, "ending_offsets is needed"),
        ({"engine": "inline", "spark_conf": {"a": "b"}}, "spark_conf has no effect"),
        ({"partition_by": ["week(at)"]}, "neither a column nor day"),
        ({"partition_by": ["_type"]}, "_type would be the name of a folder"),
        ({"partition_by": ["a"], "max_partitions": 0}, "max_partitions"),
        ({"max_partitions": 5}, "max_partitions has no effect without partition_by"),
        ({"max_files": 0}, "max_files"),
        ({"max_files": 5, "direct_write": "off"}, "max_files needs the direct write"),
        ({"partition_by": ["a"], "direct_write": "off"}, "partition_by needs the direct write"),
        ({"schema_evolution": "add_columns"}, "it is for Delta and Iceberg tables"),
        ({"initial_position": {"1:0": 29}}, "not a multiple of 28"),
        ({"initial_position": {"0": 28}}, "not '<broker id>:<partition id>'"),
        ({"initial_position": {"other": {"1:0": 28}}}, 'initial_position: expected {"orders"'),
        ({"initial_position": "{"}, "not valid JSON"),
        ({"mode": "time", "boundaries": BOUNDARIES, "start": "2026-01-01T00:00:00Z"}, "both start"),
        (
            {
                "mode": "time",
                "boundaries": BOUNDARIES,
                "start": "2026-01-02T00:00:00Z",
                "end": "2026-01-01T00:00:00Z",
            },
            "is not before end",
        ),
        ({"mode": "time", "boundaries": BOUNDARIES, "start": "2026-01-02"}, "start"),
        ({"max_records": 0}, "max_records"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"max_duration": "PT0.5S"}, "max_duration 0:00:00.500000 is less than 0:00:01"),
        ({"mode": "time", "boundaries": {}, "max_bytes": 5}, "max_bytes has no effect"),
        ({"mode": "time", "boundaries": {}, "max_duration": 5}, "max_duration has no effect"),
        ({"engine": "inline", "direct_write": "on"}, "direct_write has no effect with engine"),
        ({"direct_write": "off", "target_file_bytes": 5}, "target_file_bytes has no effect"),
        (
            {"sql": "FROM records", "corrupt_records": "quarantine", "direct_write": "off"},
            "needs the direct write",
        ),
        ({"sql": "FROM records", "transform": "a.b"}, "give either transform or sql"),
        ({"transform": "change"}, "names no module"),
        ({"engine": "inline", "sql": "FROM records"}, "sql needs engine='session'"),
        (
            {"engine": "inline", "ship_package": True},
            "ship_package has no effect with engine='inline'",
        ),
        ({"spark_work_dir": "/w"}, "spark_work_dir has no effect with engine='auto'"),
        ({"engine": "submit", "spark_work_dir": "w"}, "'w' is relative"),
        ({"engine": "connect"}, "needs the address of a server"),
        ({"spark_conf": {"spark.remote": "sc://c1"}}, "engine='connect' uses a server"),
        (
            {"engine": "connect", "spark_conf": {"spark.remote": "sc://c1"}, "spark_conn_id": "x"},
            "needs the address of a server: either",
        ),
        ({"engine": "connect", "spark_conf": {"spark.remote": "c1:15002"}}, "begin with sc://"),
        (
            {"engine": "connect", "spark_conf": {"spark.remote": "sc://c1/;token=abc"}},
            "make it the password of spark_conn_id",
        ),
        (
            {"engine": "connect", "spark_conn_id": "c", "spark_conf": {"spark.master": "yarn"}},
            "spark.master is the server's",
        ),
        ({"engine": "connect", "spark_conn_id": "c", "direct_write": "off"}, "direct_write='off'"),
        ({"engine": "connect", "spark_conn_id": "c", "deferrable": True}, "needs engine='submit'"),
        ({"engine": "inline", "spark_conn_id": "lab"}, "spark_conn_id has no effect"),
        (
            {"engine": "session", "spark_conf": {"spark.submit.deployMode": "cluster"}},
            "engine='submit' has cluster mode, on YARN",
        ),
        (
            {"engine": "submit", "spark_conf": {"lake.currency": "EUR"}},
            "spark_conf: lake.currency: spark-submit leaves out what does not begin with spark.",
        ),
        (
            {"engine": "submit", "spark_conf": {"spark.submit.deployMode": "cluster"}},
            "a local master has no cluster; use YARN, or leave spark.submit.deployMode at client",
        ),
        (
            {
                "engine": "submit",
                "spark_conf": {
                    "spark.submit.deployMode": "cluster",
                    "spark.master": "spark://a:7077",
                },
            },
            "Spark's own manager runs no Python program in cluster mode; use YARN",
        ),
        (
            {
                "engine": "submit",
                "ship_package": True,
                "spark_conf": {"spark.submit.deployMode": "cluster", "spark.master": "yarn"},
            },
            "install the package on every node",
        ),
        (
            {"spark_conn_id": "lab", "spark_conf": {"spark.master": "yarn"}},
            "spark.master is set by spark_conn_id",
        ),
        ({"decode": "xml"}, "decode"),
        ({"decode": {"format": "tdmsg", "then": {"format": "csv"}}}, "then: schema: is needed"),
        ({"decode": {"format": "json", "schema": "id bigin"}}, "decode: schema: "),
        (
            {"decode": {"format": "csv", "schema": "a int, A int"}},
            "decode: schema: column 'a' is named twice",
        ),
        ({"decode": {"format": "avro", "schema": "id bigint"}}, "decode: schema: not valid JSON"),
        (
            {"decode": {"format": "json", "schema": {"id": "int"}}},
            "decode: schema: {'id': 'int'} is not a text",
        ),
        (
            {"decode": {"format": "tdmsg", "then": {"format": "json", "schema": "id bigin"}}},
            "decode: then: schema: ",
        ),
        ({"direct_write": "off", "corrupt_records": "quarantine"}, "needs the direct write"),
        ({"topic": "9 lives"}, "topic"),
        ({"cluster": "a/b"}, "cluster"),
        (
            {"mode": "time", "resolver": "timeline", "starting_offsets": {"1:0": 0}},
            "starting_offsets has no effect with resolver='timeline'",
        ),
        (
            {**EXPLICIT, "start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"},
            "start has no effect with resolver='explicit'",
        ),
        ({**EXPLICIT, "granularity": "PT1H"}, "granularity has no effect"),
        (
            {**EXPLICIT, "new_partition_position": "stable"},
            "new_partition_position has no effect with resolver='explicit'",
        ),
        (
            {"mode": "time", "resolver": "store_time"},
            "'store_time' is not available for tubemq; choose one of boundaries, timeline, ",
        ),
        (
            {"mode": "time", "resolver": "history", "source": "rocketmq"},
            "'history' is not available for rocketmq; choose one of boundaries, timeline, ",
        ),
        ({**EXPLICIT, "ending_offsets": {"1:0": 0}}, "starting_offsets: 1:0: 28 is beyond"),
        ({**EXPLICIT, "ending_offsets": {"1:1": 56}}, "ending_offsets: 1:0 is missing"),
        ({"path": "lake/orders"}, "path: 'lake/orders' is relative"),
        ({"path": ""}, "path: '' is relative"),
        (
            {"path": None, "sink": "markers:/done", "on_clear": "rewrite"},
            "on_clear='rewrite': markers cannot replace a window in one step",
        ),
        ({"path": "s3://lake/orders"}, "path: s3://"),
        ({"gap": "skip"}, "gap: unknown argument"),
    ],
)
def test_refused_with_the_reason(arguments: dict[str, Any], said: str) -> None:
    assert said in problems(**arguments)


@pytest.mark.parametrize("value", ["newest", {}, 28])
def test_a_wrong_initial_position_is_one_problem(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(IngestArguments, {**BASE, "initial_position": value})
    assert caught.value.problems == [
        f"initial_position: {value!r} is neither 'earliest' nor 'stable' nor offsets by partition"
    ]


@pytest.mark.parametrize("given", ["alpha", ["alpha"], '["alpha"]'])
def test_a_single_filter_needs_no_list(given: object) -> None:
    assert parse(IngestArguments, {**BASE, "filters": given}).filters == ("alpha",)


@pytest.mark.parametrize("given", ["None", " ", "", None, [], "[]"])
def test_a_template_that_renders_to_nothing_filters_nothing(given: object) -> None:
    """It was the filter 'None', which no record passes: windows were empty, and the task green."""
    said = parse(IngestArguments, {**BASE, "filters": given, "partition_by": given})
    assert (said.filters, said.partition_by) == ((), ())
    assert parse(IngestArguments, {**BASE, "filters": ["None"]}).filters == ("None",)


def test_every_mistake_is_listed_at_once() -> None:
    text = problems(topic="", group="", mode="hourly", engine="spark", gap_policy="ignore")
    assert all(name in text for name in ("topic", "group", "mode", "engine", "gap_policy"))


def test_every_cross_field_mistake_is_listed_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(IngestArguments, {**BASE, "end": "2026-01-01T00:00:00Z", "resolver": "explicit"})
    assert caught.value.problems == [
        "end has no effect with mode='cursor'; use mode='time'",
        "resolver has no effect with mode='cursor'; use mode='time'",
        "give both start and end, or neither",
    ]


def test_mistakes_of_one_argument_do_not_hide_those_between_others() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(
            IngestArguments,
            {**BASE, "engine": "flink", "max_records": 5, "mode": "time", "boundaries": "{"},
        )
    assert [problem.split(" ")[0] for problem in caught.value.problems] == [
        "engine:",
        "boundaries:",
        "max_records",
    ]


def test_no_problem_builds_on_a_wrong_argument() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(IngestArguments, {**BASE, "mode": "hourly", "boundaries": BOUNDARIES, "start": "x"})
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["mode", "start"]


def test_templates_are_checked_later_but_literals_beside_them_now() -> None:
    time = {"mode": "time", "boundaries": BOUNDARIES, "start": "{{ ts }}", "end": "{{ ts }}"}
    arguments = {**BASE, "path": "{{ var.value.lake }}", **time}
    check_literals(IngestArguments, arguments, static={})
    check_literals(
        IngestArguments, {**BASE, **EXPLICIT, "starting_offsets": {"1:0": "{{ x }}"}}, static={}
    )
    with pytest.raises(ConfigError, match="engine"):
        check_literals(IngestArguments, {**arguments, "engine": "flink"}, static={})
    by = ["{{ 'day(msg_time)' if params.daily else 'hour(msg_time)' }}"]
    check_literals(IngestArguments, {**BASE, "partition_by": by}, static={})
    with pytest.raises(ConfigError, match="partition_by: 'week\\(msg_time\\)' is neither"):
        check_literals(IngestArguments, {**BASE, "partition_by": ["week(msg_time)"]}, static={})


@pytest.mark.parametrize(
    "engine",
    [
        SparkConnect(remote="{{ var.value.connect }}"),
        Spark(conf={"spark.submit.deployMode": "{{ var.value.mode }}"}),
        SparkSubmit(conf={"spark.master": "yarn", "spark.submit.deployMode": "{{ params.mode }}"}),
        SparkSubmit(
            conf={"spark.master": "{{ var.value.master }}", "spark.submit.deployMode": "cluster"}
        ),
    ],
    ids=lambda engine: type(engine).__name__,
)
def test_settings_of_spark_may_be_templates(engine: Value) -> None:
    arguments = expand_values({**BASE, "engine": engine})
    check_literals(IngestArguments, arguments, static={})
    filled = dict.fromkeys(arguments["spark_conf"], "nowhere")
    with pytest.raises(ConfigError, match="spark_conf: spark"):
        parse(IngestArguments, {**arguments, "spark_conf": filled})


@pytest.mark.parametrize("name", ["filters", "initial_position"])
def test_a_list_or_mapping_rendered_by_jinja_gets_the_advice_tojson(name: str) -> None:
    for text in (str(["a", "b"]), str({"1:0": "earliest"})):
        with pytest.raises(ConfigError, match=rf"{name}: not valid JSON .*\| tojson"):
            parse(IngestArguments, {**BASE, name: text})
    with pytest.raises(ConfigError) as caught:
        parse(IngestArguments, {**BASE, name: '{"1:0": '})
    assert "tojson" not in str(caught.value)


def test_identity_may_not_be_a_template() -> None:
    with pytest.raises(ConfigError, match="topic: cannot be a template, it names an asset"):
        check_literals(
            IngestArguments,
            {**BASE, "topic": "{{ params.topic }}"},
            static={"topic": "it names an asset"},
        )


@pytest.mark.parametrize("value", ["{{ ds }}", ["a", "{{ ds }}"], {"1:0": "{% if x %}"}])
def test_templates_are_found_inside_values(value: object) -> None:
    assert is_template(value)
    assert not is_template("plain")


def test_offsets_may_be_bare_or_below_their_topic() -> None:
    assert offsets_for_topic({"1:0": 28}, "orders", "until_offsets") == {"1:0": 28}
    assert offsets_for_topic({"orders": {"1:0": 28}}, "orders", "until_offsets") == {"1:0": 28}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"start": "2026-01-01"}, "has no time zone; write 2026-01-01T00:00:00Z"),
        ({"start": datetime(2026, 1, 1)}, "2026-01-01T00:00:00 has no time zone; .* tzinfo=UTC"),  # noqa: DTZ001
        ({"max_duration": "10 minutes"}, "'10 minutes' is no length; give a timedelta, seconds"),
        ({"end": "2026-01-02T00:00:00Z"}, "end has no effect with mode='cursor'; use mode='time'"),
    ],
)
def test_a_mistake_is_reported_with_a_correction(wrong: dict[str, Any], said: str) -> None:
    given = {"topic": "orders", "group": "lake", "cluster": "c", "path": "/lake", **wrong}
    with pytest.raises(ConfigError, match=said):
        parse(IngestArguments, given)


OF_ROCKETMQ = {**BASE, "source": "rocketmq"}


@pytest.mark.parametrize(
    "names",
    [
        {"topic": "order-events", "group": "1-lake"},
        {"topic": "2024_orders", "group": "%lake|x"},
        {"topic": "%DLQ%payments", "group": "g" * 248},
        {"topic": "t" * 127, "filters": ("order.paid", "支付", "a:b", "a b")},
    ],
    ids=str,
)
def test_names_of_rocketmq_are_those_that_its_brokers_take(names: dict[str, Any]) -> None:
    found = parse(IngestArguments, {**OF_ROCKETMQ, **names})
    assert {name: getattr(found, name) for name in names} == names
    assert "topic: " in problems(**names)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"topic": "order.events"}, "topic: 'order.events' is no topic name: it must match"),
        ({"topic": "t" * 128}, "have at most 127 characters"),
        ({"group": "lake 1"}, "group: 'lake 1' is no group name"),
        ({"group": "g" * 249}, "have at most 248 characters"),
        ({"group": ""}, "group: '' is no group name"),
        ({"filters": ["paid || open"]}, "'paid || open' is no tag: give each of several"),
        ({"filters": ["*"]}, "'*' is no tag"),
        ({"filters": [" paid"]}, "' paid' is no tag"),
        ({"filters": ["paid", ""]}, "'' is no filter name"),
        ({"filters": ["a\x01b"]}, "has a control character"),
    ],
)
def test_names_that_its_brokers_do_not_take_are_refused(names: dict[str, Any], said: str) -> None:
    assert said in problems(source="rocketmq", **names)


@pytest.mark.parametrize(
    ("sink", "package"),
    [("delta:/lake/orders", "deltalake"), ("s3://lake/orders", "obstore"), ("/lake", "pyarrow")],
)
def test_a_missing_extra_is_a_problem_of_the_arguments(
    sink: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Dag is refused when it is parsed, not by its first run."""
    monkeypatch.setattr(factory, "_is_installed", lambda package: False)
    found = problems(path=None, sink=sink, max_records=0)
    assert f"{package} is needed here; install it with: pip install" in found
    assert "max_records" in found, "every problem is listed"


def test_without_an_engine_small_windows_start_no_spark() -> None:
    assert parse(IngestArguments, BASE).engine == "auto"
    assert parse(IngestArguments, {**BASE, "sql": "SELECT * FROM records"}).engine == "auto"
