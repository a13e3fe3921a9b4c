"""Boundaries from files and URLs that do not do: an error that names the place and no secret."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import Any

import pytest

from tests.provider.windows.clocks import history_body
from tests.provider.windows.run.test_standalone_windows import HOUR, MAPPING, NOON
from tests.provider.windows.world import TOPIC
from tubemq_client.errors import ConfigError
from tubemq_provider.sources.tubemq.history_resolver import history_sample
from tubemq_provider.windows.errors import DocumentError, WindowNotReady
from tubemq_provider.windows.time_resolvers.boundaries import Boundaries

fsspec = pytest.importorskip("fsspec")


class Telling(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A file system that repeats the address it was given, as HTTP's does."""

    protocol = "telling"

    def _open(self, path: str, *_: object, **__: object) -> Any:
        raise RuntimeError(f"403 for telling://{path}")


@pytest.mark.parametrize("password", ["hush", "no#hush", "no/hush", "no?hush", "no@hush"])
def test_a_url_that_cannot_be_read_is_named_without_its_secrets(password: str) -> None:
    fsspec.register_implementation("telling", Telling, clobber=True)
    url = f"telling://me:{password}@lake/boundaries.json?sig=also-hush"
    with pytest.raises(ConfigError, match="cannot be read: RuntimeError") as caught:
        Boundaries.load(url, TOPIC)
    assert "telling://lake/boundaries.json" in str(caught.value)
    said = "".join(traceback.format_exception(caught.value))
    assert not [secret for secret in (password, "sig=", "me:") if secret in said]
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [("[" * 100_000, "cannot be read"), ("{", "cannot be read"), ("[]", "holds no JSON object")],
)
def test_a_url_with_something_else_in_it_is_named_without_its_secrets(
    text: str, problem: str
) -> None:
    with fsspec.open("memory://lake/odd.json?sig=hush", "wt") as file:
        file.write(text)
    with pytest.raises(ConfigError, match=f"memory://lake/odd.json {problem}") as caught:
        Boundaries.load("memory://lake/odd.json?sig=hush", TOPIC)
    assert "hush" not in str(caught.value)


def test_a_readable_url_works_with_all_its_parts() -> None:
    with fsspec.open("memory://lake/good.json?sig=hush", "wt") as file:
        json.dump(MAPPING, file)
    found = Boundaries.load("memory://lake/good.json?sig=hush", TOPIC)
    assert found.offsets_at(NOON + HOUR)["1:0"] == 56


def test_a_path_is_named_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.json cannot be read.*No such file"):
        Boundaries.load(tmp_path / "missing.json", TOPIC)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"ver": 3, "group": "g", "bId": 1, "records": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"ver": 3, "group": "g", "bId": 1e999, "records": []}',
        history_body(10**17, {0: 28}),
    ],
    ids=["open", "deep", "infinite", "of no year"],
)
def test_a_history_record_of_any_shape_is_a_document_error(body: bytes) -> None:
    """A client that may write to ``__offset_history__`` chooses it."""
    with pytest.raises(DocumentError, match="record of the offset history"):
        history_sample(body, "g", TOPIC)


def test_an_instant_after_the_newest_boundary_is_not_ready_and_names_the_command(
    tmp_path: Path,
) -> None:
    """The producer is late: a retry finds the boundary. One that was left out never comes."""
    path = tmp_path / "hours.json"
    for content, known in [({}, "there is none yet"), (MAPPING, "the newest is")]:
        path.write_text(json.dumps(content))
        boundaries = Boundaries.load(path, TOPIC)
        with pytest.raises(WindowNotReady, match=known) as late:
            boundaries.offsets_at(NOON.replace(year=2030))
        assert late.value.retriable
        command = f"tubemq produce {TOPIC} --file ROWS --time-field NAME --to 2030-"
        assert command in str(late.value)
        assert str(late.value).endswith(f"--boundaries {path}")
    with pytest.raises(ConfigError, match="nearest known"):
        boundaries.offsets_at(NOON.replace(minute=1))
