"""Prove that a change of words left the code as it was: ``python -m tools.language.same_tree REV``.

Compares the Python files of a git revision with those of the work tree. Docstrings and comments are
dropped, names of the old files are mapped (``--names``, see `tools.language.names`), and what is
left must be the same syntax tree, but for the order of imports and of `__all__`. Texts in the code
(errors, log lines, help) may differ only with ``--texts``, which prints each of them for review;
local variables may have other names only with ``--locals``. Standard library only.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.language.locals import numbered
from tools.language.names import Names, renamed


class _Plain(ast.NodeTransformer):
    """Drops docstrings, maps names, and takes texts out where they may differ."""

    def __init__(self, renames: Mapping[str, str], texts: list[str] | None) -> None:
        self._renames = renames
        self._texts = texts

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name, value in ast.iter_fields(node):
            if isinstance(value, str) and not isinstance(node, ast.Constant):
                setattr(node, name, self._renamed(value))
            elif isinstance(value, list):
                kept = [part for part in value if not _is_docstring(part)]
                kept = [self._renamed(part) if isinstance(part, str) else part for part in kept]
                setattr(node, name, kept)
        super().generic_visit(node)
        if isinstance(body := getattr(node, "body", None), list):
            _sort_imports(body)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        if names == ["__all__"] and isinstance(node.value, ast.List | ast.Tuple):
            node.value.elts.sort(key=ast.dump)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):
            text = self._renamed(node.value)
            if self._texts is not None and " " in text:
                self._texts.append(text)
                text = "a text"
            node.value = text
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        if self._texts is None:
            return self.generic_visit(node)
        self._texts.append(self._renamed(ast.unparse(node)))
        values = [part for part in node.values if isinstance(part, ast.FormattedValue)]
        node.values = [self.visit(part) for part in values]
        return node

    def _renamed(self, text: str) -> str:
        return renamed(text, self._renames)


def _sort_imports(body: list[ast.stmt]) -> None:
    """Sort neighbouring imports, and the names within each: a formatter orders them by name."""
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            statement.names.sort(key=ast.dump)
    begin = 0
    for end in range(len(body) + 1):
        if end == len(body) or not isinstance(body[end], ast.Import | ast.ImportFrom):
            body[begin:end] = sorted(body[begin:end], key=ast.dump)
            begin = end + 1


def _is_docstring(node: object) -> bool:
    """Tell if a statement is a bare text: the docstring of a module, class, function or field."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def plain(
    source: str,
    renames: Mapping[str, str],
    texts: list[str] | None,
    *,
    local_names: bool = False,
) -> str:
    """Return the dump of a file's syntax tree; `texts` receives the texts that may differ.

    With `local_names` the local variables of each function may have other names.
    """
    tree = _Plain(renames, texts).visit(ast.parse(source))
    return ast.dump(numbered(tree) if local_names else tree)


def _old_files(base: str, folders: list[str], names: Names) -> Iterator[tuple[str, str]]:
    """Yield path and source of the Python files of a revision, with their new imports."""
    listed = _git("ls-tree", "-r", "--name-only", base, "--", *folders).splitlines()
    for path in listed:
        if path.endswith(".py"):
            yield path, names.prepared(path, _git("show", f"{base}:{path}"))


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def problems(
    base: str, folders: list[str], names: Names, *, texts: bool, local_names: bool
) -> Iterator[str]:
    """Yield one line for each file that differs, and with `texts` one for each text that does."""
    expected: set[str] = set()
    for old, before in _old_files(base, folders, names):
        new = names.path(old)
        expected.add(new)
        if not Path(new).exists():
            yield f"{old}: gone"
            continue
        after = Path(new).read_text()
        if before == after:
            continue
        was: list[str] | None = [] if texts else None
        now: list[str] | None = [] if texts else None
        earlier_tree = plain(before, names.within(old), was, local_names=local_names)
        if earlier_tree != plain(after, {}, now, local_names=local_names):
            yield f"{new}: differs in more than words"
        for earlier, later in zip(was or (), now or (), strict=False):
            if earlier != later:
                print(f"{new}: text: {earlier!r} -> {later!r}")
    tracked = _git("ls-files", "--", *folders).splitlines()
    yield from (f"{path}: new" for path in tracked if path.endswith(".py") and path not in expected)


def main() -> int:
    """Print what differs; the exit code is 1 if anything does."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("base", help="git revision to compare with")
    parser.add_argument("folders", nargs="*", default=["."], help="folders to compare")
    parser.add_argument("--names", nargs="+", type=Path, default=[], help="TOML files with renames")
    parser.add_argument("--texts", action="store_true", help="let texts differ, and print them")
    parser.add_argument(
        "--locals", action="store_true", help="let the names of local variables differ"
    )
    options = parser.parse_args()
    names = Names.read(*options.names)
    differing = list(
        problems(
            options.base,
            options.folders or ["."],
            names,
            texts=options.texts,
            local_names=options.locals,
        )
    )
    print("\n".join(differing) or "the same code")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
