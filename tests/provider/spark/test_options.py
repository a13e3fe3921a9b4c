"""Option checking as users see it: all problems at once, by name, before any server is
contacted."""

from __future__ import annotations

import pytest

from tubemq_client.errors import ConfigError
from tubemq_provider.sources.tubemq.columns import RECORDS
from tubemq_provider.spark.option_parser import Option
from tubemq_provider.spark.options import OPTIONS, parse_options

GOOD = {"masters": "m1:8715,m2", "topic": "demo", "group": "etl"}


def problems(**given: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_options({**GOOD, **given})
    return caught.value.problems


def test_the_least_that_works_reads_the_whole_topic_up_to_the_stable_end() -> None:
    options = parse_options(GOOD)
    assert options.masters == (("m1", 8715), ("m2", 8715))
    assert (options.topic, options.group, options.filters) == ("demo", "etl", ())
    assert (options.start, options.end) == ("earliest", "stable")
    assert options.partitions is None
    assert options.columns == RECORDS.names
    assert (options.gap_policy, options.corrupt_records) == ("fail", "fail")
    assert options.batch_bytes == 4 * 1024 * 1024


def test_names_are_case_insensitive_and_have_aliases() -> None:
    lowered = {"tubemq.MASTERS": "m1:9", "TOPIC": "demo", "group": "g", "streamids": "b, a"}
    options = parse_options({**lowered, "startingoffsets": "earliest", "failondataloss": "False"})
    assert options.masters == (("m1", 9),)
    assert options.filters == ("a", "b")
    assert options.gap_policy == "skip"


def test_all_problems_are_listed_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options(
            {
                "topik": "demo",
                "batchBytes": "many",
                "startingOffsets": "{oops",
                "corruptRecords": "shrug",
                "columns": "offset,valeu",
            }
        )
    named = [problem.split(":")[0] for problem in caught.value.problems]
    assert sorted(named) == sorted(
        [
            "topik",
            "masters",
            "topic",
            "group",
            "startingOffsets",
            "columns",
            "corruptRecords",
            "batchBytes",
        ]
    )
    assert str(caught.value).count("\n") == len(named)


def test_an_unknown_option_suggests_the_one_that_was_meant() -> None:
    assert problems(startingOffset="earliest") == [
        "startingOffset: unknown option; did you mean 'startingOffsets'?"
    ]
    assert "known are" in problems(zzz="1")[0]


def test_kafka_habits_get_an_answer() -> None:
    assert "'masters'" in problems(**{"kafka.bootstrap.servers": "b:9092"})[0]
    assert "'group'" in problems(**{"kafka.group.id": "g"})[0]
    assert "lets a client move offsets" in problems(**{"kafka.auto.offset.reset": "latest"})[0]
    assert "cannot be combined with 'topic'" in problems(subscribe="demo")[0]
    assert "load() takes no argument" in problems(path="demo")[0]


def test_a_password_is_refused_and_never_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options({**GOOD, "password": "hunter2"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"startingOffsets": "{oops"}, "startingOffsets: not valid JSON"),
        ({"startingOffsets": "soon"}, "'soon' is neither an offset nor one of 'earliest'"),
        ({"startingOffsets": "latest"}, "'latest' makes no sense here"),
        ({"endingOffsets": "earliest"}, "'earliest' makes no sense here"),
        ({"startingOffsets": '{"other": {"1:0": 28}}'}, "names 'other', but the topic read is"),
        ({"startingOffsets": '{"demo": [1]}'}, "topic 'demo' needs an object"),
        ({"startingOffsets": '{"demo": {"0": 28}}'}, "partition key '0' is not"),
        ({"startingOffsets": '{"demo": {"1:0": 2.5}}'}, "2.5 is neither an offset"),
        ({"startingOffsets": '{"demo": {"1:0": true}}'}, "True is neither an offset"),
        ({"startingOffsets": '{"demo": {"1:0": -28}}'}, "offset -28 is not a multiple of 28"),
        ({"endingOffsets": '{"demo": {"1:0": 100}}'}, "the nearest below is 84"),
        ({"endingOffsets": '{"demo": {"1:0": 28, "1:0": 56}}'}, "'1:0' occurs twice"),
        ({"partitions": "1:0,one"}, "partitions: partition key 'one' is not"),
        ({"masters": "m1:port"}, "masters: 'm1:port' is not '<host>:<port>'"),
        ({"minPartitions": "0"}, "minPartitions: '0' is not a whole number between 1 and"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss: 'maybe' is neither 'true' nor 'false'"),
        ({"columns": "offset,offset"}, "columns: names a column twice"),
        ({"tubemq.masters": "m3"}, "masters: given twice"),
        ({"includeHeaders": "false", "columns": "attributes,value"}, "columns: names 'attributes'"),
        ({"startingTimestamp": "soon"}, "'soon' is not a time in ms since 1970"),
        ({"startingTimestamp": "2026-11-23T10:00:00"}, "'2026-11-23T10:00:00' is not a time in ms"),
        ({"startingTimestamp": "1764000000"}, "not in seconds: is 1764000000000 meant"),
        (
            {"endingOffsetsByTimestamp": '{"demo": {"1:0": 1764000000}}'},
            "endingOffsetsByTimestamp of partition 1:0 of topic 'demo': 1764000000 lies before",
        ),
        ({"endingOffsetsByTimestamp": '{"demo": {"1:0": -1}}'}, "is not a time in ms since 1970"),
        ({"startingOffsets": '{"demo": {"1:0": -1}}'}, "'latest' makes no sense here"),
        ({"endingOffsets": '{"demo": {"1:0": -2}}'}, "'earliest' makes no sense here"),
    ],
)
def test_a_wrong_value_is_named_with_its_option(given: dict[str, str], sentence: str) -> None:
    found = problems(**given)
    assert len(found) == 1
    named = next(reversed(given)) if "columns" in given else next(iter(given))
    assert found[0].startswith(named.removeprefix("tubemq."))
    assert sentence in found[0]


def test_a_start_beyond_the_end_names_the_partition() -> None:
    found = problems(
        startingOffsets='{"demo": {"1:0": 2800, "1:1": "earliest"}}',
        endingOffsets='{"demo": {"1:0": 28, "1:1": 28}}',
    )
    assert found == ["startingOffsets 2800 of partition 1:0 is beyond endingOffsets 28"]


def test_topics_are_chosen_as_from_kafka() -> None:
    base = {"masters": "m1", "groupIdPrefix": "etl"}
    several = parse_options({**base, "subscribe": "a, b,a", "maxRecordsPerPartition": "10"})
    assert (several.topics.names, several.group, several.max_records) == (("a", "b"), "etl", 10)
    assigned = parse_options({**base, "assign": '{"b": ["1:1"], "a": ["1:0", "2:0"]}'})
    keys = [str(partition) for partition in assigned.partitions or ()]
    assert keys == ["1:a:0", "1:b:1", "2:a:0"]
    pattern = {**base, "subscribePattern": "a.*", "admin": "http://m1:8080"}
    assert parse_options(pattern).topics.pattern == "a.*"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "topic: is needed"),
        ({"subscribe": "a", "assign": '{"a": ["1:0"]}'}, "assign: cannot be combined with 'sub"),
        ({"subscribePattern": "a.*"}, "admin: is needed with 'subscribePattern'"),
        ({"subscribePattern": "(", "admin": "m:8080"}, "'(' is no regular expression"),
        ({"topic": "a", "admin": "m:8080"}, "admin: is used with 'subscribePattern' only"),
        ({"assign": '{"a": []}'}, "assign: names no partition"),
        ({"assign": "[]"}, "assign: "),
        ({"assign": '{"a": ["x"]}'}, "partition key 'x' is not"),
        ({"subscribe": "a,b", "partitions": "1:0"}, "partitions: needs one topic"),
        ({"topic": "a", "startingTimestamp": "0", "startingOffsets": "earliest"}, "says the same"),
    ],
)
def test_a_wrong_choice_of_topics_is_named(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options({"masters": "m1", "group": "etl", **given})
    assert len(caught.value.problems) == 1
    assert sentence in caught.value.problems[0]


def test_a_task_has_no_more_connections_than_there_are_groups() -> None:
    assert parse_options({**GOOD, "connectionsPerTask": "32"}).connections == 32
    for given in ({"connectionsPerTask": "33"}, {"connectionsPerTask": "3", "poolSize": "2"}):
        with pytest.raises(ConfigError, match=r"connectionsPerTask: '\d+' is not a whole"):
            parse_options({**GOOD, **given})


@pytest.mark.parametrize(
    ("text", "master"),
    [
        ("[::1]:8000", ("::1", 8000)),
        ("[::1]", ("::1", 8715)),
        ("2001:db8::5", ("2001:db8::5", 8715)),
    ],
)
def test_an_ipv6_master_is_understood(text: str, master: tuple[str, int]) -> None:
    assert parse_options({**GOOD, "masters": text}).masters == (master,)


@pytest.mark.parametrize("text", ["m1:8715;m2:8715", "m1 m2", "http://m1:8715", "m1:1234567"])
def test_an_invalid_host_name_is_no_master(text: str) -> None:
    with pytest.raises(ConfigError, match="is not '<host>:<port>'"):
        parse_options({**GOOD, "masters": text})


def test_every_default_is_valid_when_written_out() -> None:
    spelled_out = {option.name: option.default for option in OPTIONS if option.default}
    assert parse_options({**GOOD, **spelled_out}) == parse_options(GOOD)


@pytest.mark.parametrize("blank", ["", " ", "\n"])
@pytest.mark.parametrize("option", OPTIONS)
def test_a_blank_option_is_not_treated_as_a_missing_one(option: Option, blank: str) -> None:
    """A filter that a program left empty read every stream, and an empty window the whole topic."""
    assert any(
        problem.startswith(f"{option.name}: is blank")
        for problem in problems(**{option.name: blank})
    )
