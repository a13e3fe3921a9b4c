"""The table of options: what is made from it agrees with what uses it."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pytest

from tubemq_client.errors import ConfigError
from tubemq_provider.ingest.arguments import OPTIONS, IngestArguments
from tubemq_provider.ingest.options import described, parameters, takes
from tubemq_provider.ingest.validation import parse
from tubemq_provider.ingest.values import VALUES, members

BASE = {"topic": "orders", "group": "lake", "cluster": "c", "path": "/lake"}
OTHER: dict[str, Any] = {
    "start": "2026-01-01T00:00:00Z",
    "end": "2026-01-02T00:00:00Z",
    "granularity": "PT1H",
    "max_run_window": "PT1H",
    "resolver": "timeline",
    "boundaries": "/b.json",
    "late_allowance": "PT1H",
    "history_group": "other",
    "message_zone": "Europe/Berlin",
    "starting_offsets": {"1:0": 0},
    "ending_offsets": {"1:0": 1},
    "on_missing_interval": "fail",
    "initial_position": "earliest",
    "max_records": 3,
    "max_bytes": 3,
    "max_duration": "PT1H",
    "on_offset_regression": "reset_to_end",
    "commit_to_broker": True,
    "epoch_seen": "c-1-0123456789",
    "spark_conf": {"spark.master": "local"},
    "spark_conn_id": "spark",
    "spark_work_dir": "/work",
    "ship_package": True,
    "direct_write": "off",
    "compression": "zstd",
    "verify": "footers",
    "partition_by": "topic",
    "max_files": 3,
    "schema_evolution": "add_columns",
    "routes": {"name": "n", "tables": {"a": "/a"}},
    "apply": "upsert",
    "key": "id",
    "version": "at",
    "soft_delete": "gone",
}
"""A value other than the default of each option that not everything has."""


def refused(**arguments: Any) -> list[str]:
    try:
        parse(IngestArguments, {**BASE, **arguments})
    except ConfigError as error:
        return error.problems
    return []


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.modes])
def test_an_option_of_the_other_mode_is_refused(name: str) -> None:
    (mode,) = {"cursor", "time"} - {*OPTIONS[name].modes}
    said = f"{name} has no effect with mode='{mode}'"
    assert any(text.startswith(said) for text in refused(mode=mode, **{name: OTHER[name]}))


ENGINES = {"inline", "session", "auto"}


@pytest.mark.parametrize(
    "name", [n for n, item in OPTIONS.items() if item.engines and ENGINES - {*item.engines}]
)
def test_an_option_of_another_engine_is_refused(name: str) -> None:
    engine = next(e for e in sorted(ENGINES) if e not in OPTIONS[name].engines)
    found = refused(engine=engine, **{name: OTHER[name]})
    assert f"{name} has no effect with engine='{engine}'" in found


@pytest.mark.parametrize("name", [name for name, item in OPTIONS.items() if item.without_sink])
def test_an_option_of_another_sink_is_refused(name: str) -> None:
    spec, word = "sqlite:////lake.db?table=t", "sqlite"
    if word in OPTIONS[name].sinks:
        spec, word = "/lake", "parquet"
    found = refused(path=None, sink=spec, **{name: OTHER[name]})
    assert OPTIONS[name].without_sink.format(sink=word) in found


@pytest.mark.parametrize(("holder", "kinds"), VALUES.items())
def test_members_of_values_are_the_options_that_operators_have_through_them(
    holder: str, kinds: tuple[Any, ...]
) -> None:
    listed = {name for name, option in OPTIONS.items() if option.via == holder}
    assert listed == {name for kind in kinds for name in members(kind)} - {holder}


def test_every_option_is_described_and_every_field_is_one() -> None:
    assert IngestArguments.model_fields.keys() - OPTIONS.keys() == {"source", "mode"}
    assert all(option.doc.endswith(".") for option in OPTIONS.values())


def test_a_signature_is_made_of_the_options_of_a_mode() -> None:
    options = parameters(IngestArguments, ["cursor"])

    @takes(IngestArguments, options)
    def make(*, filters: tuple[str, ...] = ("own",), **kwargs: Any) -> None: ...

    made = signature(make).parameters
    assert {*made} == {*options, "kwargs"}
    assert made["topic"].default is made["topic"].empty
    assert (made["cluster"].default, made["engine"].default) == (None, "auto")
    assert made["filters"].default == ("own",), "the function's own"
    assert "start" not in made
    assert "gap_policy" not in made, "of policies"
    assert described(options).count(":param ") == len(options)
