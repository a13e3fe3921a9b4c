"""Topic of lines, as windows are planned from it and read."""

from pathlib import Path

from example_lines.space import SPACE
from tubemq_client.config import CommonOptions
from tubemq_provider.sources.counting import CountingSource


class CONFIG(CommonOptions):
    """Options of the connection: the directory."""

    root: str

    def settings(self) -> str:
        """Return what travels to executors."""
        return self.root


class LineSource(CountingSource):
    """One topic as one group sees it."""

    space = SPACE

    def counts(self) -> dict[str, int]:
        """Return the number of lines of each file."""
        folder = Path(self.settings(), self.topic)
        return {path.name: len(path.read_bytes().splitlines()) for path in folder.iterdir()}

    def read(self, key: str, start: int, end: int) -> dict[str, list[bytes]]:
        """Return lines of a file."""
        path = Path(self.settings(), self.topic, key)
        return {"value": path.read_bytes().splitlines()[start:end]}


open_source = LineSource
