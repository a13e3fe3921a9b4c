"""An address with a login is refused, and no error repeats what may be its password."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rocketmq_client.config import ClientConfig as RocketMQConfig
from rocketmq_snode.options import SnodeConfig
from tubemq_client import errors
from tubemq_client.admin import web_urls
from tubemq_client.config import ClientConfig, from_url
from tubemq_client.errors import ConfigError
from tubemq_provider.spark.option_parser import Option, OptionParser


def spark_masters(text: str) -> None:
    values = OptionParser([Option("masters")], {"masters": text}, refused={})
    values.addresses("masters", default_port=8715)
    if values.problems:
        raise ConfigError(values.problems, subject="options")


READERS: dict[str, Callable[[str], object]] = {
    "masters": lambda text: ClientConfig.parse({"masters": text}),
    "name servers": lambda text: RocketMQConfig.parse({"name_servers": text}),
    "list of masters": lambda text: ClientConfig.parse({"masters": text.split(",")}),
    "list of name servers": lambda text: RocketMQConfig.parse({"name_servers": text.split(",")}),
    "pair": lambda text: RocketMQConfig.parse({"name_servers": [[text]]}),
    "service node": lambda text: SnodeConfig.parse({"cluster": "c", "name_servers": text}),
    "another option": lambda text: ClientConfig.parse({"masters": "m", "rpc_timeout_ms": text}),
    "URL": lambda text: from_url(text.replace("https:", "tubemq:")),
    "admin": web_urls,
    "spark": spark_masters,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "text",
    [
        "https://user:s3cret@m/",
        "user:s3cret@m:9876",
        "s3cret@m",
        "m1,https://user:s3cret@m2",
        "https://user:s3cret,s3cret@m",
        "https://user:s3cret/s3cret@m",
        "https://user:s3cret\u2100x@m",
        "https://[user:s3cret@m]/",
    ],
)
def test_no_error_repeats_the_password_of_an_address(reader: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        READERS[reader](text)
    assert "s3cret" not in str(caught.value)


def test_what_follows_a_question_mark_of_an_address_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        ClientConfig.parse({"masters": "m1:8715?authPassword=s3cret"})
    assert "s3cret" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        from_url("m1?topic=orders&authPassword=s3&cret")
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("m1:8715", "m1:8715"),
        ("http://u:a,b@m1,m2", "…@m1,m2"),
        ("http://m1/?token=abc", "http://m1/?…"),
        ("m1#abc", "m1#…"),
    ],
)
def test_an_address_is_shown_without_what_may_be_secret(address: str, shown: str) -> None:
    assert errors.without_credentials(address) == shown
