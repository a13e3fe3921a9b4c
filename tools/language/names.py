"""Apply tables of renames to the tree: ``python -m tools.language.names FILE.toml…``.

The file has a table `names` (old identifier to new one) and a table `files` (old path to new path,
a file or a folder). A name may be limited to files and folders: ``old = {new = "…", in = ["…"]}``,
or have several meanings: ``old = [{…}, {…}]``. With ``texts = false`` it is replaced only in code,
not in texts (a key of a document stays). An old name with a dot or a space is a piece of the code
and is replaced as it is written: ``"fetching.settle" = {…}``. All tables are one: paths are always
the old ones, and where tables or rules differ in a name, the first one decides. Imports and paths
of renamed modules need no names.

``--clashes`` lists the files in which a new name is in use already, and changes nothing.

Identifiers are replaced in code and in texts without spaces. In comments, docstrings, other texts
and pages of docs they are replaced only where they cannot be a word of a sentence: with an
underscore, with a capital inside, or in backticks. `same_tree` proves afterwards that nothing else
changed. Standard library only.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import tokenize
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

_IDENTIFIER = re.compile(r"(?<![\w])[A-Za-z_]\w*")
# Words and names are examples here.
_EXAMPLES = ("tools/language/", "tests/tools/test_language.py")
_FORMATTED = re.compile(r"[rR]?[fF]")
_IN_BRACES = re.compile(r"\{[^{}]*\}")
_IN_BACKTICKS = re.compile(r"`[^`\s]+`")


@dataclass(frozen=True)
class Names:
    """Renames of identifiers and of files."""

    everywhere: Mapping[str, str] = field(default_factory=dict)
    limited: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    only_in_code: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def read(cls, *paths: Path) -> Names:
        """Read TOML files (see the module)."""
        names: dict[str, list[dict[str, Any]]] = {}
        files: dict[str, str] = {}
        for path in paths:
            document = tomllib.loads(path.read_text())
            files = {**document.get("files", {}), **files}
            for old, given in document.get("names", {}).items():
                rules = [
                    {"new": rule, "in": [""]} if isinstance(rule, str) else rule
                    for rule in (given if isinstance(given, list) else [given])
                ]
                earlier = names.setdefault(old, [])
                if _agree(earlier, rules):
                    earlier += rules
                else:
                    print(f"{path}: {old} is in an earlier table")
        return cls(
            limited=tuple(
                (old, rule["new"], tuple(rule["in"]))
                for old, rules in names.items()
                for rule in rules
            ),
            files=files,
            only_in_code=frozenset(
                (old, rule["new"])
                for old, rules in names.items()
                for rule in rules
                if not rule.get("texts", True)
            ),
        )

    def path(self, old: str) -> str:
        """Return the new path of an old file."""
        for before, after in self.files.items():
            if old == before or old.startswith(before.rstrip("/") + "/"):
                return after + old[len(before) :]
        return old

    def within(self, path: str) -> dict[str, str]:
        """Return the renames that hold in code and texts of a file."""
        limited = {
            old: new
            for old, new, folders in reversed(self.limited)
            if path.startswith(folders) and old.isidentifier()
            if (old, new) not in self.only_in_code
        }
        return {**self.everywhere, **limited}

    def prepared(self, path: str, source: str) -> str:
        """Return a file with renamed modules, and with the names that only the code has."""
        source = self.moved(source)
        for old, new, folders in self.limited:
            if not old.isidentifier() and path.startswith(folders):
                source = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", new, source)
        if path == "pyproject.toml":
            return self._in_contracts(source)
        if not path.endswith(".py"):
            return source
        names = {
            old: new
            for old, new, folders in reversed(self.limited)
            if path.startswith(folders) and (old, new) in self.only_in_code
        }
        modules = {module.rpartition(".")[2] for module in self._modules}
        has_module = not modules.isdisjoint(_IDENTIFIER.findall(source))
        for node in ast.walk(ast.parse(source)) if has_module else ():
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    module = f"{node.module}.{alias.name}"
                    if module in self._modules:
                        names[alias.name] = self._modules[module].rpartition(".")[2]
        return renamed_source(source, names, texts=False) if names else source

    def moved(self, text: str) -> str:
        """Return a text with the dotted names and paths of renamed modules replaced."""
        if self.files:
            text = self._module.sub(lambda match: self._modules[match[0]], text)
            text = self._path.sub(lambda match: self._paths[match[0]], text)
        return text

    def _in_contracts(self, text: str) -> str:
        """Return import contracts with the layers of their containers renamed."""
        contracts = re.split(r"(?=^\[\[tool\.importlinter)", text, flags=re.MULTILINE)
        return "".join(map(self._in_contract, contracts))

    def _in_contract(self, contract: str) -> str:
        container = re.search(r'^containers = \["([\w.]+)"\]', contract, re.MULTILINE)
        for old, new in self._modules.items():
            package, _, module = old.rpartition(".")
            if container and package == container[1]:
                layer = rf"(?<![\w.]){module}(?![\w.])"
                contract = re.sub(layer, new.rpartition(".")[2], contract)
        return contract

    @cached_property
    def _modules(self) -> dict[str, str]:
        """Dotted names of renamed modules and packages."""
        return {
            old.removesuffix(".py").strip("/").replace("/", "."): (
                new.removesuffix(".py").strip("/").replace("/", ".")
            )
            for old, new in self.files.items()
        }

    @cached_property
    def _paths(self) -> dict[str, str]:
        """Paths of renamed files, and those ends of them that mean no other file."""
        paths = {}
        for old, new in self.files.items():
            before, after = old.split("/"), new.split("/")
            for depth in range(len(before)):
                if before[:depth] != after[:depth]:
                    break
                end = "/".join(before[depth:])
                others = {path for path in _tracked() if f"/{path}".endswith(f"/{end}")}
                if depth == 0 or others <= {old}:
                    paths[end] = "/".join(after[depth:])
        return paths

    @cached_property
    def _module(self) -> re.Pattern[str]:
        return _any_of(self._modules, r"(?<![\w./])", r"(?![\w/])")

    @cached_property
    def _path(self) -> re.Pattern[str]:
        return _any_of(self._paths, r"(?<![\w./-])", r"(?![\w-])")


def renamed(text: str, renames: Mapping[str, str]) -> str:
    """Return a text of the code with its identifiers renamed (see the module)."""
    if not re.search(r"\s", text):
        return _replace(text, renames)
    distinct = {old: new for old, new in renames.items() if _is_no_word(old)}
    text = _replace(text, distinct)
    return _IN_BACKTICKS.sub(lambda quoted: _replace(quoted[0], renames), text)


def renamed_source(source: str, renames: Mapping[str, str], *, texts: bool = True) -> str:
    """Return a Python file with its identifiers renamed, without `texts` only those of the code."""
    if renames.keys().isdisjoint(_IDENTIFIER.findall(source)):
        return source
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
        if texts or token.type == tokenize.NAME:
            text = renamed(token.string, renames)
        elif _FORMATTED.match(token.string):
            text = _IN_BRACES.sub(lambda code: _replace(code[0], renames), token.string)
        else:
            continue
        parts += [source[done:begin], text]
        done = begin + len(token.string)
    return "".join([*parts, source[done:]])


def _replace(text: str, renames: Mapping[str, str]) -> str:
    return _IDENTIFIER.sub(lambda found: renames.get(found[0], found[0]), text)


def _any_of(words: Mapping[str, str], before: str, after: str) -> re.Pattern[str]:
    longest_first = sorted(words, key=len, reverse=True)
    return re.compile(f"{before}(?:{'|'.join(map(re.escape, longest_first))}){after}")


@cache
def _tracked() -> tuple[str, ...]:
    """Return the files that git knows."""
    listed = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True)
    return tuple(listed.stdout.splitlines())


def _agree(earlier: list[dict[str, Any]], later: list[dict[str, Any]]) -> bool:
    """Tell if rules of two tables for one name say the same, or are about other files."""
    if {rule["new"] for rule in later} <= {rule["new"] for rule in earlier}:
        return True
    ours = tuple(place for rule in earlier for place in rule["in"])
    theirs = tuple(place for rule in later for place in rule["in"])
    return not any(a.startswith(b) or b.startswith(a) for a in ours for b in theirs)


def clashes(names: Names, paths: Iterable[str]) -> Iterator[str]:
    """Yield the renames whose new name is used, or made of two names, in one file."""
    for path in paths:
        if not path.endswith(".py"):
            continue
        tokens = tokenize.generate_tokens(io.StringIO(Path(path).read_text()).readline)
        used = {token.string for token in tokens if token.type == tokenize.NAME}
        rules = {
            old: new for old, new, folders in reversed(names.limited) if path.startswith(folders)
        }
        kept = used - rules.keys()
        for old in used & rules.keys():
            if rules[old] in kept or any(
                rules[o] == rules[old] for o in used & rules.keys() - {old}
            ):
                yield f"{path}: {old} -> {rules[old]}"


def _is_no_word(identifier: str) -> bool:
    """Tell if an identifier cannot be a word of a sentence."""
    return "_" in identifier or any(letter.isupper() for letter in identifier[1:])


def apply(names: Names, paths: Iterable[str]) -> None:
    """Rename files, and identifiers in Python files and pages of docs."""
    for old in paths:
        new = names.path(old)
        if new != old:
            Path(new).parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["git", "mv", old, new], check=True)
        path = Path(new)
        if path.suffix not in {".md", ".py", ".pyi", ".toml"} and path.name != "Makefile":
            continue
        if old.startswith(_EXAMPLES):
            continue
        before = path.read_text()
        after = names.prepared(old, before)
        if path.suffix in {".md", ".py", ".pyi"}:
            change = renamed if path.suffix == ".md" else renamed_source
            after = change(after, names.within(old))
        if after != before:
            path.write_text(after)


def main() -> None:
    """Apply a file of names to all files that git knows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("names", nargs="+", type=Path, help="TOML files with renames")
    parser.add_argument("--clashes", action="store_true", help="list new names already in use")
    options = parser.parse_args()
    names = Names.read(*options.names)
    if options.clashes:
        print("\n".join(clashes(names, _tracked())))
    else:
        apply(names, _tracked())


if __name__ == "__main__":
    main()
