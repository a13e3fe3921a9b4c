"""Rename a local variable: ``python -m tools.language.locals FILE FUNCTION OLD NEW``.

With ``--batch LIST`` the four words come from the lines of a file.
FUNCTION is the name of a function, with that of its class if several have it (``Reader.read``). A
parameter may be renamed too, if no call in the repository gives it by name. The file is written
only if its syntax tree, with the local variables of each function numbered, is the same as before:
`numbered` is that proof, which `same_tree` uses too. Standard library only.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_SCOPES = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)
_NAMED = (
    ast.ExceptHandler,
    ast.MatchAs,
    ast.MatchStar,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
)


def numbered(tree: ast.AST) -> ast.AST:
    """Return a tree whose local variables are numbered by their first appearance.

    Two trees that differ only in the names of local variables become equal. Parameters count as
    local variables in nested and private functions, where no call of the file gives them by name.
    """
    return _Numbered(_keywords(tree)).visit(tree)


class _Numbered(ast.NodeTransformer):
    """Replaces the name of each local variable by the number of its function and its own."""

    def __init__(self, keywords: set[tuple[str, str]]) -> None:
        self._keywords = keywords
        self._scopes: list[dict[str, str]] = []
        self._count = 0

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.name = self._name(node.name)
            for decorator in node.decorator_list:
                self.visit(decorator)
        if isinstance(node, _SCOPES):
            self._scopes.append(self._locals_of(node))
            self._children(node)
            self._scopes.pop()
            return node
        return self._children(node)

    def _children(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.alias):
            # What is imported keeps its name, only what it is called here may differ.
            node.asname = self._name(node.asname or node.name.split(".")[0])
            return node
        for field in ("id", "arg", "rest") + (
            () if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else ("name", "asname")
        ):
            if isinstance(name := getattr(node, field, None), str) and not isinstance(
                node, ast.keyword
            ):
                setattr(node, field, self._name(name))
        return self.generic_visit(node)

    def _name(self, name: str) -> str:
        for scope in reversed(self._scopes):
            if name in scope:
                if not scope[name]:
                    self._count += 1
                    scope[name] = f"local {self._count}"
                return scope[name]
        return name

    def _locals_of(self, scope: ast.AST) -> dict[str, str]:
        """Return the local names of a scope, without numbers yet."""
        names = dict.fromkeys(stored_names(scope), "")
        if isinstance(scope, _Function):
            name = getattr(scope, "name", "_")
            private = name.startswith("_") and not name.startswith("__")
            for parameter in parameters(scope):
                if (private or self._scopes) and (name, parameter) not in self._keywords:
                    names[parameter] = ""
                else:
                    names.pop(parameter, None)
        return names


def parameters(function: _Function) -> list[str]:
    """Return the names of a function's parameters."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [part for part in (arguments.vararg, arguments.kwarg) if part]
    return [part.arg for part in every]


def stored_names(scope: ast.AST) -> set[str]:
    """Return the names that a scope itself assigns, without those of nested functions."""
    names: set[str] = set()
    elsewhere: set[str] = set()
    parts: list[ast.AST] = (
        [generator.target for generator in scope.generators]
        if isinstance(scope, _Comprehension)
        else list(getattr(scope, "body", []))
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef)
        else []
    )
    while parts:
        node = parts.pop()
        if isinstance(node, ast.Global | ast.Nonlocal):
            elsewhere |= set(node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            names.add(node.id)
        elif isinstance(node, _NAMED):
            names.add(node.name or "")
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.split(".")[0])
        if isinstance(node, _Comprehension):
            # An assignment expression in a comprehension belongs to the function around it.
            walrus = (part for part in ast.walk(node) if isinstance(part, ast.NamedExpr))
            names |= {part.target.id for part in walrus}
        elif not isinstance(node, (*_SCOPES, ast.ClassDef)):
            parts.extend(ast.iter_child_nodes(node))
    return names - elsewhere


def _keywords(tree: ast.AST) -> set[tuple[str, str]]:
    """Return function and parameter of each argument that a call of a file gives by name."""
    pairs = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            pairs |= {(name, part.arg) for part in node.keywords if part.arg}
    return pairs


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield qualified name and node of each function."""
    for node in ast.iter_child_nodes(tree):
        name = f"{prefix}{node.name}" if hasattr(node, "name") and node.name else prefix
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, node
        inner = f"{name}." if isinstance(node, (*_SCOPES[:2], ast.ClassDef)) else prefix
        yield from _functions(node, inner)


def rename(source: str, function: str, old: str, new: str) -> str:
    """Return a file with a local variable or a parameter of a function renamed.

    Raises:
        ValueError: no such function or variable, the new name is taken, or the result would be
            another program.
    """
    tree = ast.parse(source)
    matches = [
        node for name, node in _functions(tree) if name == function or name.endswith(f".{function}")
    ]
    if not matches:
        raise ValueError(f"no function {function}")
    changed = source
    touched = False
    for node in matches:
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        used |= {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
        if old not in used:
            continue
        if new in used:
            raise ValueError(f"{new} is used in {function} already")
        touched = True
        changed = _replaced(changed, node, old, new)
    if not touched:
        raise ValueError(f"no variable {old} in {function}")
    before, after = ast.parse(source), ast.parse(changed)
    if ast.dump(numbered(before)) != ast.dump(numbered(after)):
        raise ValueError(
            f"{old} -> {new} in {function} would change the program: rename it by hand "
            "(a parameter of a public function, or one that is given by name)"
        )
    return changed


def _replaced(source: str, node: ast.FunctionDef | ast.AsyncFunctionDef, old: str, new: str) -> str:
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    header_end = node.body[0].lineno
    parts: list[tuple[int, int, str]] = []
    before = ""
    depth = 0
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for token, following in zip(tokens, [*tokens[1:], tokens[-1]], strict=True):
        if token.type == tokenize.OP:
            depth += (token.string in "([{") - (token.string in ")]}")
        inside = node.lineno <= token.start[0] <= (node.end_lineno or 0)
        begin = starts[token.start[0] - 1] + token.start[1]
        end = starts[token.end[0] - 1] + token.end[1]
        keyword = depth > 0 and following.string == "=" and token.start[0] >= header_end
        if inside and token.type == tokenize.NAME and token.string == old:
            if before != "." and not keyword:
                parts.append((begin, end, new))
        elif inside and token.type == tokenize.STRING and re.match(r"(?i)r?f|fr", token.string):
            text = re.sub(
                r"(?<!\{)\{(?!\{)[^{}]*\}",
                lambda braces: re.sub(rf"(?<![\w.'\"]){old}(?![\w'\"])", new, braces[0]),
                token.string,
            )
            parts.append((begin, end, text))
        before = token.string
    for begin, end, text in reversed(parts):
        source = source[:begin] + text + source[end:]
    return source


def _given_by_name(function: str, parameter: str) -> list[str]:
    """Return the files in which a call gives a parameter by name."""
    listed = subprocess.run(
        ["git", "grep", "-lw", parameter, "--", "*.py"], capture_output=True, text=True, check=False
    )
    pair = (function.rsplit(".", 1)[-1], parameter)
    return [
        path
        for path in listed.stdout.split()
        if pair in _keywords(ast.parse(Path(path).read_text()))
    ]


def _rename_in_file(path: Path, function: str, old: str, new: str) -> str:
    """Rename in a file; return the problem, or an empty text."""
    try:
        changed = rename(path.read_text(), function, old, new)
    except (ValueError, OSError, SyntaxError) as problem:
        return str(problem)
    if callers := _given_by_name(function, old):
        return f"{old} is given by name in {', '.join(callers)}: rename it by hand"
    path.write_text(changed)
    return ""


def main() -> int:
    """Rename, or print why not; the exit code is 1 then."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("rename", nargs="*", help="FILE FUNCTION OLD NEW")
    parser.add_argument("--batch", type=Path, help="file with such lines")
    options = parser.parse_args()
    lines = [options.rename] if options.rename else []
    if options.batch:
        lines += [line.split() for line in options.batch.read_text().splitlines()]
    failed = 0
    for file, function, old, new in filter(None, lines):
        if problem := _rename_in_file(Path(file), function, old, new):
            failed += 1
            print(f"{file}: {function}: {problem}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
