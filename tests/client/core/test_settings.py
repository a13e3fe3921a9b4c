"""Plain settings refuse values that mean nothing; the models of `config` have narrower ranges."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from tubemq_client import ClientSettings, ConsumerSettings, ProducerSettings, errors
from tubemq_client.config import ClientConfig, ConsumerConfig, ProducerConfig

MASTERS = (("127.0.0.1", 8715),)
PAIRS = [
    (lambda **options: ClientSettings(MASTERS, **options), ClientConfig, ClientSettings),
    (ConsumerSettings, ConsumerConfig, ConsumerSettings),
    (ProducerSettings, ProducerConfig, ProducerSettings),
]
NUMBERS = [
    (make, model, item.name)
    for make, model, kind in PAIRS
    for item in fields(kind)
    if type(item.default) is int
]


@pytest.mark.parametrize(("make", "model", "name"), NUMBERS, ids=[name for *_, name in NUMBERS])
def test_numbers_that_mean_nothing_are_refused(make: Any, model: Any, name: str) -> None:
    with pytest.raises(errors.ConfigError, match=f"{name}: -2 is less than"):
        make(**{name: -2})
    (least,) = (item.ge for item in model.model_fields[name].metadata if hasattr(item, "ge"))
    assert getattr(make(**{name: least}), name) == least, "what a model allows"


def test_all_problems_are_listed() -> None:
    with pytest.raises(errors.ConfigError) as caught:
        ConsumerSettings(confirm_timeout_ms=-5, not_found_wait_ms=-3, report_every_beats=0)
    text = str(caught.value)
    assert all(
        f"{name}: " in text
        for name in ("confirm_timeout_ms", "not_found_wait_ms", "report_every_beats")
    )


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: ConsumerSettings(consume_position="first"), "consume_position: 'first' is not"),  # type: ignore[arg-type]
        (lambda: ProducerSettings(large_records="maybe"), "large_records: 'maybe' is not"),  # type: ignore[arg-type]
        (lambda: ProducerSettings(link_max_quarantined_share=1.5), "1.5 is not 0 to 1"),
    ],
)
def test_words_and_shares_are_judged_too(make: Any, problem: str) -> None:
    with pytest.raises(errors.ConfigError, match=problem):
        make()
