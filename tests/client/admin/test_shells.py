"""Both clients have the same methods, in the same order, with the same options and words."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tubemq_client import errors
from tubemq_client.admin import AdminClient, AsyncAdminClient


def public(kind: type[Any]) -> list[str]:
    return [name for name in vars(kind) if not name.startswith("_")]


def test_same_names_in_the_same_order() -> None:
    assert public(AdminClient) == public(AsyncAdminClient)


@pytest.mark.parametrize("name", [n for n in public(AdminClient) if n not in ("run", "close")])
def test_same_options_and_words(name: str) -> None:
    blocking, awaited = getattr(AdminClient, name), getattr(AsyncAdminClient, name)

    assert inspect.signature(blocking) == inspect.signature(awaited)
    assert "Conversation" not in str(inspect.signature(blocking))
    assert inspect.getdoc(blocking) == inspect.getdoc(awaited)
    assert inspect.getdoc(blocking)
    assert inspect.iscoroutinefunction(awaited)
    assert not inspect.iscoroutinefunction(blocking)


def test_a_token_is_never_shown() -> None:
    with AdminClient("http://127.0.0.1:1", token="s3cret-token") as client:
        assert "s3cret" not in repr(vars(client)) + repr(vars(client.web))
        with pytest.raises(errors.ConnectError) as failure:
            client.create_topic("orders", broker_ids=[1])
    assert "s3cret" not in repr(failure.value) + repr(failure.value.__cause__)


@pytest.mark.parametrize(
    "urls", ["", "ftp://host", "http://user:s3cret@host:8080", "http://h:x", "http://m..1:80", []]
)
def test_wrong_addresses_are_refused_at_once(urls: Any) -> None:
    with pytest.raises(errors.ConfigError, match="HTTP addresses of masters") as failure:
        AdminClient(urls)
    assert "s3cret" not in str(failure.value)
