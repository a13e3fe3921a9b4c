"""Apply a table of renames to the tree: ``python -m tools.language.names FILE.toml``.

The file has a table `names` (old identifier to new one) and a table `files` (old path to new path,
a file or a folder). A name may be limited to folders: ``old = {new = "…", in = ["…"]}``.

Identifiers are replaced in code and in texts without spaces. In comments, docstrings, other texts
and pages of docs they are replaced only where they cannot be a word of a sentence: with an
underscore, with a capital inside, or in backticks. `same_tree` proves afterwards that nothing else
changed. Standard library only.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import tokenize
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_IDENTIFIER = re.compile(r"(?<![\w])[A-Za-z_]\w*")
_IN_BACKTICKS = re.compile(r"`[^`\s]+`")


@dataclass(frozen=True)
class Names:
    """Renames of identifiers and of files."""

    everywhere: Mapping[str, str] = field(default_factory=dict)
    limited: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Names:
        """Read a TOML file (see the module)."""
        document = tomllib.loads(path.read_text())
        names = document.get("names", {})
        return cls(
            {old: new for old, new in names.items() if isinstance(new, str)},
            tuple(
                (old, rule["new"], tuple(rule["in"]))
                for old, rule in names.items()
                if not isinstance(rule, str)
            ),
            document.get("files", {}),
        )

    def path(self, old: str) -> str:
        """Return the new path of an old file."""
        for before, after in self.files.items():
            if old == before or old.startswith(before.rstrip("/") + "/"):
                return after + old[len(before) :]
        return old

    def within(self, path: str) -> dict[str, str]:
        """Return the renames that hold in a file."""
        limited = {
            old: new for old, new, folders in self.limited if path.startswith(tuple(folders))
        }
        return {**self.everywhere, **limited}


def renamed(text: str, renames: Mapping[str, str]) -> str:
    """Return a text of the code with its identifiers renamed (see the module)."""
    if not re.search(r"\s", text):
        return _replace(text, renames)
    distinct = {old: new for old, new in renames.items() if _is_no_word(old)}
    text = _replace(text, distinct)
    return _IN_BACKTICKS.sub(lambda quoted: _replace(quoted[0], renames), text)


def renamed_source(source: str, renames: Mapping[str, str]) -> str:
    """Return a Python file with its identifiers renamed."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    parts: list[str] = []
    done = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in {tokenize.NAME, tokenize.STRING, tokenize.COMMENT}:
            continue
        begin = starts[token.start[0] - 1] + token.start[1]
        text = renamed(token.string, renames)
        parts += [source[done:begin], text]
        done = begin + len(token.string)
    return "".join([*parts, source[done:]])


def _replace(text: str, renames: Mapping[str, str]) -> str:
    return _IDENTIFIER.sub(lambda found: renames.get(found[0], found[0]), text)


def _is_no_word(identifier: str) -> bool:
    """Tell if an identifier cannot be a word of a sentence."""
    return "_" in identifier or any(letter.isupper() for letter in identifier[1:])


def apply(names: Names, paths: list[str]) -> None:
    """Rename files, and identifiers in Python files and pages of docs."""
    for old in paths:
        new = names.path(old)
        if new != old:
            Path(new).parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["git", "mv", old, new], check=True)
        path = Path(new)
        if path.suffix not in {".py", ".md"}:
            continue
        before = path.read_text()
        change = renamed_source if path.suffix == ".py" else renamed
        after = change(before, names.within(old))
        if after != before:
            path.write_text(after)


def main() -> None:
    """Apply a file of names to all files that git knows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("names", type=Path, help="TOML file with renames")
    listed = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True)
    apply(Names.read(parser.parse_args().names), listed.stdout.splitlines())


if __name__ == "__main__":
    main()
