"""Options: every problem at once, by name; nothing unknown; nothing secret in texts."""

from __future__ import annotations

import pytest
from pydantic import Field

from tubemq_client import errors
from tubemq_client.config import ClientConfig, CommonOptions, ConsumerConfig, from_url


def test_all_problems_are_listed_at_once_by_option_name() -> None:
    with pytest.raises(errors.ConfigError) as failure:
        ConsumerConfig.parse(
            {"masters": "m1:x", "topic": "1bad", "group": "g g", "rpc_timeout_ms": 1, "colour": 1}
        )
    names = [problem.split(":")[0] for problem in failure.value.problems]
    assert names == ["masters", "rpc_timeout_ms", "topic", "group", "colour"]
    assert "unknown option; known: " in failure.value.problems[-1]


def test_an_option_that_nearly_matches_is_offered_instead_of_all() -> None:
    with pytest.raises(errors.ConfigError) as failure:
        ClientConfig.parse({"masters": "m1", "rpc_timeout": 1})
    assert failure.value.problems == ["rpc_timeout: unknown option; did you mean rpc_timeout_ms?"]


@pytest.mark.parametrize("text", ["m1;m2", "m1;m2:8715", "m1:8715 m2:8715", "m1|m2", "m1 m2"])
def test_masters_between_which_there_is_no_comma_are_not_taken_for_one_name(text: str) -> None:
    with pytest.raises(errors.ConfigError) as failure:
        ClientConfig.parse({"masters": text})
    assert failure.value.problems == [
        f"masters: {text!r}: not host:port; write a comma between masters"
    ]


@pytest.mark.parametrize("text", ["m1/orders", "m1?group=g", "<host>", "m1:\uff18\uff10"])
def test_an_invalid_host_name_is_refused_at_once(text: str) -> None:
    with pytest.raises(errors.ConfigError, match="not host:port"):
        ClientConfig.parse({"masters": text})


@pytest.mark.parametrize(
    "text", ["m_1.intern-2.", "m\u00fcnchen", "\u0939\u093f\u0928\u094d\u0926\u0940"]
)
def test_names_of_hosts_may_have_letters_of_any_script(text: str) -> None:
    assert ClientConfig.parse({"masters": text}).masters == ((text, 8715),)


def test_options_that_a_url_has_twice_are_all_told() -> None:
    with pytest.raises(errors.ConfigError) as failure:
        from_url("tubemq://m1/orders?masters=m2&topic=clicks&group=a&filters=x&filters=y&group=b#c")
    assert failure.value.problems == [
        "masters: is there more than once",
        "topic: is there more than once",
        "group: is there more than once",
        "'#': means nothing here; in a value it is written %23",
    ]


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("m1", (("m1", 8715),)),
        ("m1:1,m2:2", (("m1", 1), ("m2", 2))),
        (" m1:1 , m2 ", (("m1", 1), ("m2", 8715))),
        ("[::1]:8715", (("::1", 8715),)),
    ],
)
def test_master_lists(text: str, addresses: tuple[tuple[str, int], ...]) -> None:
    assert ClientConfig.parse({"masters": text}).settings().masters == addresses


@pytest.mark.parametrize("text", ["", "m1:0", "m1:70000", ":8715", "m1:port"])
def test_master_lists_that_are_none(text: str) -> None:
    with pytest.raises(errors.ConfigError, match="masters"):
        ClientConfig.parse({"masters": text})


def test_all_wrong_addresses_of_a_list_are_named() -> None:
    with pytest.raises(errors.ConfigError) as failure:
        ClientConfig.parse({"masters": "m1:x,m2:8715,:5,m3:99999"})
    assert failure.value.problems == ["masters: 'm1:x', ':5', 'm3:99999': not host:port"]


@pytest.mark.parametrize("text", ["admin:hunter2@m1:8715", "tubemq://admin:hunter2@m1:8715/t"])
def test_a_password_among_masters_is_not_repeated(text: str) -> None:
    with pytest.raises(errors.ConfigError, match="…@m1:8715") as failure:
        ClientConfig.parse({"masters": text})
    assert "hunter2" not in str(failure.value)


def test_a_url_with_half_a_bracket_is_refused() -> None:
    with pytest.raises(errors.ConfigError, match="Invalid IPv6 URL"):
        from_url("tubemq://[::1:8715/t")


def test_a_url_carries_topic_group_filters_and_options() -> None:
    config = ConsumerConfig.parse(
        from_url("tubemq://m1:1,m2/orders?group=grp&filters=a&filters=b&rpc_timeout_ms=5000")
    )
    assert (config.topic, config.group, config.filters) == ("orders", "grp", ("a", "b"))
    assert config.settings().rpc_timeout_ms == 5_000


def test_a_url_with_credentials_is_refused_without_repeating_them() -> None:
    with pytest.raises(errors.ConfigError) as failure:
        from_url("tubemq://user:hunter2@m1/orders")
    assert "hunter2" not in str(failure.value)


def test_values_in_problems_are_not_echoed_by_pydantic() -> None:
    with pytest.raises(errors.ConfigError) as failure:
        ClientConfig.parse({"masters": "m1", "secret": "hunter2"})
    assert "hunter2" not in str(failure.value)


@pytest.mark.parametrize(
    "options",
    [
        {"auth": {"username": "u", "password": 20261123777}},
        {"auth": {"username": "u", "password": {"value": "20261123777"}}},
        {"auth": {"username": 20261123777, "password": "p"}},
        {"auth": "u:20261123777"},
        {"auth": ["u", "20261123777"]},
        {"tls": {"cert_file": "c.pem", "key_password": 20261123777}},
        {"tls": "key_password=20261123777"},
    ],
)
def test_what_is_or_holds_a_secret_is_not_repeated_whatever_its_type(
    options: dict[str, object],
) -> None:
    with pytest.raises(errors.ConfigError) as failure:
        ClientConfig.parse({"masters": "m1", **options})
    assert next(iter(options)) in str(failure.value)
    assert "20261123777" not in str(failure.value)


class _Nested(CommonOptions):
    limit: int = 1
    hidden: int = Field(1, repr=False)


class _Outer(CommonOptions):
    nested: _Nested = _Nested()
    users: tuple[tuple[str, str], ...] = Field((), repr=False)


def test_options_that_a_model_does_not_show_are_not_repeated_and_others_are() -> None:
    with pytest.raises(errors.ConfigError) as failure:
        _Outer.parse({"nested": {"limit": "many", "hidden": "hunter2"}, "users": [["u", 2026]]})
    limit, *others = failure.value.problems
    assert "'many'" in limit
    assert [line.split(":")[0] for line in others] == ["nested.hidden", "users.0.1"]
    assert not {"hunter2", "2026"} & set(" ".join(others).replace("'", " ").split())
    with pytest.raises(errors.ConfigError) as failure:
        _Outer.parse({"nested": "hunter2"})
    assert "hunter2" not in str(failure.value)


def test_an_address_of_go_with_an_option_twice_is_refused() -> None:
    with pytest.raises(errors.ConfigError) as refused:
        from_url("m1:8715?topic=a&filters=x&filters=y&topic=b&group=one&group=two")
    assert refused.value.problems == ["group: is there more than once"]


def test_topics_that_are_no_names_are_a_problem_like_others() -> None:
    given = {"masters": "m1", "group": "nightly", "topics": [["orders"]], "pool_size": 0}
    with pytest.raises(errors.ConfigError) as refused:
        ConsumerConfig.parse(given)
    assert [problem.split(":")[0] for problem in refused.value.problems] == ["topics", "pool_size"]


def test_no_topics_may_be_said() -> None:
    given = {"masters": "m1", "group": "nightly", "topic": "orders"}
    assert ConsumerConfig.parse({**given, "topics": None}) == ConsumerConfig.parse(given)
    with pytest.raises(errors.ConfigError, match=r"topics: \{\}: it is empty"):
        ConsumerConfig.parse({"masters": "m1", "group": "nightly", "topics": []})


def test_a_time_of_go_beyond_all_numbers_is_refused() -> None:
    with pytest.raises(errors.ConfigError, match="readTimeout"):
        from_url(f"m1:8715?topic=orders&group=nightly&readTimeout={'9' * 400}h")
