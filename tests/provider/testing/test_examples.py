"""Each example under plugins/examples passes the suite of its kind, as its author would run it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kit.forked import CONTEXT  # noqa: F401 - before the first process is forked
from tubemq_provider.testing.decoder_suite import DecoderSuite
from tubemq_provider.testing.engine_suite import EngineSuite
from tubemq_provider.testing.offset_store_suite import OffsetStoreSuite
from tubemq_provider.testing.resolver_suite import ResolverSuite
from tubemq_provider.testing.source_suite import SourceSuite, SourceTopic
from tubemq_provider.windows import spaces
from tubemq_provider.windows.policies import Policies

EXAMPLES = Path(__file__).parents[3] / "plugins" / "examples"
sys.path += [str(folder) for folder in EXAMPLES.iterdir() if str(folder) not in sys.path]


class TestLines(SourceSuite):
    @pytest.fixture(autouse=True)
    def installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(spaces.SOURCES, "text_lines", "example_lines")

    def make(self, tmp_path: Path) -> SourceTopic:
        folder = tmp_path / "cluster" / "orders"
        folder.mkdir(parents=True)
        for name in ("p0", "p1"):
            (folder / name).touch()

        def produce(bodies: list[bytes]) -> None:
            for number, body in enumerate(bodies):
                with (folder / f"p{number % 2}").open("ab") as file:
                    file.write(body + b"\n")

        return SourceTopic("text_lines", {"root": str(folder.parent)}, "orders", produce)


class TestLogging(EngineSuite):
    def make(self, source: Any) -> Any:
        from example_logging_engine import LoggingEngine

        return LoggingEngine.for_source(source, policies=Policies())


class TestSharedFiles(OffsetStoreSuite):
    def make(self, tmp_path: Path, task: str) -> Any:
        from example_file_store import SharedFiles

        return SharedFiles(tmp_path / "progress", task=task)


class TestEverything(ResolverSuite):
    def make(self, source: Any) -> Any:
        from example_first_resolver import Everything

        return Everything(None, source, None)


class TestWords(DecoderSuite):
    bodies, rows = (b"apple 1", b"pear 2"), ({"word": "apple"}, {"word": "pear"})

    @pytest.fixture(autouse=True)
    def _decoder(self) -> None:
        from example_words_decoder import decode

        type(self).decode = staticmethod(decode)
