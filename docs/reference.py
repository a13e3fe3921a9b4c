"""Writes the reference pages: every public name with its signature and its docstring.

    python docs/reference.py    write build/docs/reference/; 1 if a docstring is missing

What is public: docs/public.toml lists the modules, their `__all__` the names. Sources are parsed,
never imported, so no extra is needed; a name that an `__init__` re-exports is followed to its
definition. A public class, function, method or property without a docstring is a problem, as is a
listed module that is not there or has no `__all__`. The pages are made and not kept in git. Run by
`make docs`, before `docs/check.py`, which resolves links to these pages.
"""

from __future__ import annotations

import ast
import shutil
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from inspect import cleandoc
from pathlib import Path
from textwrap import indent
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PUBLIC = ROOT / "docs" / "public.toml"
EXAMPLES = ROOT / "docs" / "examples.toml"
PAGES = ROOT / "build" / "docs" / "reference"

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_WIDTH = 96
_OTHERS = (("modes", ()), ("via", ""), ("writes", False), ("optional", False), ("template", False))
_OPERATORS = {
    (): "both operators",
    ("cursor",): "`TubeMQCursorIngestOperator`",
    ("time",): "`TubeMQWindowIngestOperator`",
}
_PROTOCOLS = "tubemq_provider.windows.protocols"
_OPTIONS = "tubemq_provider.ingest.fields"


@dataclass(frozen=True)
class Found:
    """Definition of a public name. `node` is None for a constant."""

    module: str
    name: str
    node: Definition | None


@dataclass
class Reference:
    """Pages by file name, and problems of the sources."""

    pages: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add_page(self, name: str, title: str, modules: list[str]) -> None:
        lines = [f"# Reference: {title}", "", "Made from the source by `docs/reference.py`.", ""]
        for module in modules:
            if not is_module(module):
                self.problems.append(f"{module}: listed in docs/public.toml, and not there")
                continue
            found = [_follow(module, public) for public in public_names(module)]
            if not found:
                self.problems.append(f"{module}: listed in docs/public.toml, and has no `__all__`")
            lines += [f"## {module}", "", *self._names(module, found)]
        self.pages[f"{name}.md"] = "\n".join(lines).rstrip() + "\n"

    def add_arguments(self) -> None:
        """Add the page of the options of an ingest: a block for each, with its example."""
        examples = tomllib.loads(EXAMPLES.read_text(encoding="utf-8"))
        lines = ["# Arguments of the ingest operators", "", _ARGUMENTS_INTRODUCTION, ""]
        for option in _table():
            if option.name not in examples:
                self.problems.append(f"{option.name}: no example in docs/examples.toml")
                continue
            lines += [f"## {option.name}", "", _sentence(option.doc), ""]
            lines += [*(f"- {fact}" for fact in _facts(option)), ""]
            lines += ["```python", *_example(option, examples[option.name]), "```"]
            lines.append("")
        self.problems += [
            f"{name}: an example in docs/examples.toml of no option"
            for name in examples.keys() - {option.name for option in _table()}
        ]
        self.pages["arguments.md"] = "\n".join(lines)

    def add_index(self, titles: dict[str, str], also: list[str]) -> None:
        lines = ["# Reference", "", "All that is public. In Python:", ""]
        lines += [f"- [{title}]({name}.md)" for name, title in titles.items()]
        lines.append("- [Arguments of the ingest operators](arguments.md), each with an example")
        lines += [
            "",
            "What is stored or typed is public, too:",
            "",
            *(f"- {word}" for word in also),
        ]
        self.pages["index.md"] = "\n".join(lines) + "\n"

    def _names(self, module: str, found: list[Found]) -> Iterator[str]:
        constants = [item.name for item in found if item.node is None]
        for item in found:
            if isinstance(item.node, ast.ClassDef):
                yield from self._class(module, item, item.node)
            elif item.node is not None:
                yield from self._block(f"### {item.name}", item.node, f"{module}.{item.name}")
        if constants:
            yield from ("### Constants", "", ", ".join(f"`{name}`" for name in constants), "")

    def _class(self, module: str, found: Found, node: ast.ClassDef) -> Iterator[str]:
        yield from self._block(f"### {found.name}", node, f"{module}.{found.name}")
        for member in _members(found.module, node):
            where = f"{module}.{found.name}.{member.name}"
            yield from self._block(f"#### {found.name}.{member.name}", member, where)

    def _block(self, heading: str, node: Definition, where: str) -> Iterator[str]:
        text = ast.get_docstring(node) or _promise(node.name)
        if not text:
            self.problems.append(f"{where}: no docstring")
        yield from (heading, "", "```text", _signature(node), "```", "")
        yield from (_prose(text), "")
        if isinstance(node, ast.ClassDef) and (options := _options_of(node)):
            yield from (*(f"- `{item.name}`: {item.doc}" for item in options), "")


@dataclass(frozen=True)
class Listed:
    """One option of an ingest, as the table has it."""

    name: str
    default: ast.expr | None
    doc: str
    modes: tuple[str, ...] = ()
    via: str = ""
    writes: bool = False
    optional: bool = False
    template: bool = False


@cache
def _table() -> tuple[Listed, ...]:
    """Return the table of options of an ingest, which its model has as annotations."""
    model = next(
        node
        for node in _tree(_OPTIONS).body
        if isinstance(node, ast.ClassDef) and node.name == "IngestFields"
    )
    return tuple(
        Listed(node.target.id, _default(node.value), *_literals(call))
        for node in model.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        for call in ast.walk(node.annotation)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "Option"
    )


_ARGUMENTS_INTRODUCTION = """\
Every argument of `TubeMQCursorIngestOperator` and `TubeMQWindowIngestOperator`. RocketMQ's two
operators and Dagster's assets have the same ones. An example shows the arguments that belong
together; what it leaves out is `task_id`, `topic`, `group`, `path`, and for the cursor
`initial_position`. [Windows from an Airflow Dag](../airflow.md) says which to choose."""


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:] if text[:1].isalpha() else text
    return text.replace("``", "`")


def _facts(option: Listed) -> Iterator[str]:
    yield f"For {_OPERATORS[option.modes]}."
    if option.via:
        yield f"A member of the value of `{option.via}`."
    if option.default is None and not option.optional:
        yield "Has no default."
    elif option.default is not None:
        yield f"Default: `{ast.unparse(option.default)}`."
    if option.template:
        yield "May be a Jinja template."


def _example(option: Listed, arguments: str) -> Iterator[str]:
    """Yield the lines of a call with `arguments`, one in a line."""
    text = f"dict({arguments})"
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    kind = "Window" if option.modes == ("time",) else "Cursor"
    yield f"TubeMQ{kind}IngestOperator("
    yield "    ...,"
    for item in call.keywords:
        yield f"    {item.arg}={ast.get_source_segment(text, item.value)},"
    yield ")"


def _literals(call: ast.Call) -> Iterator[Any]:
    named = {item.arg: item.value for item in call.keywords}
    yield ast.literal_eval(call.args[0])
    for name, default in _OTHERS:
        yield ast.literal_eval(named[name]) if name in named else default


def _default(value: ast.expr | None) -> ast.expr | None:
    return value.args[0] if isinstance(value, ast.Call) and value.args else value


def _options_of(node: ast.ClassDef) -> list[Listed]:
    """Return the options that a class has as fields, or takes with ``options = parameters(…)``."""
    if node.name == "IngestArguments":
        return [*_table()]
    for item in node.body:
        if isinstance(item, ast.Assign) and ast.unparse(item.value).startswith("parameters("):
            call = item.value
            assert isinstance(call, ast.Call)
            modes = {*ast.literal_eval(call.args[1])}
            selects_only = any(word.arg == "writes" for word in call.keywords)
            return [
                option
                for option in _table()
                if not option.via
                and (not option.modes or modes & {*option.modes})
                and not (selects_only and option.writes)
            ]
    return []


def _promise(name: str) -> str:
    """For a method that says nothing itself: which protocol's it is, if one has it."""
    for node in _tree(_PROTOCOLS).body:
        if isinstance(node, ast.ClassDef) and name in {m.name for m in _own_members(node)}:
            return f"As `{_PROTOCOLS}.{node.name}.{name}` says."
    return ""


def _prose(docstring: str) -> str:
    """Return the docstring as Markdown: parameters become a list, indented blocks stay."""
    lines = []
    for line in cleandoc(docstring).splitlines():
        if line.startswith(":param "):
            name, _, rest = line.removeprefix(":param ").partition(":")
            lines.append(f"- `{name}`:{rest}")
        else:
            lines.append(line)
    return "\n".join(lines)


def _signature(node: Definition) -> str:
    if not isinstance(node, ast.ClassDef):
        kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
        if _is_property(node):
            return f"{node.name}: {ast.unparse(node.returns) if node.returns else 'Any'}"
        result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        return _wrapped(f"{kind} {node.name}(", _arguments(node), f"){result}")
    init = next((m for m in _own_members(node) if m.name == "__init__"), None)
    if init is not None:
        *own, rest = _arguments(init) or [""]
        made = [
            f"{option.name}={ast.unparse(option.default)}"
            if option.default is not None
            else f"{option.name}=None"
            if option.optional
            else option.name
            for option in _options_of(node)
        ]
        return _wrapped(f"class {node.name}(", [*own, *made, rest] if rest else [], ")")
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    head = f"class {node.name}({bases})" if bases else f"class {node.name}"
    fields = [line for line in map(_field, node.body) if line]
    return "\n".join([head, *(f"    {line}" for line in fields)])


def _field(node: ast.stmt) -> str:
    """Describe a field of a data class or an option model, or a member of an enumeration."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        if node.target.id.startswith("_"):
            return ""
        kind = node.annotation
        if isinstance(kind, ast.Subscript) and "Option(" in ast.unparse(kind):
            # The list below the signature has what the option's metadata says.
            kind = kind.slice.elts[0] if isinstance(kind.slice, ast.Tuple) else kind
        value = f" = {ast.unparse(node.value)}" if node.value else ""
        return indent(f"{node.target.id}: {ast.unparse(kind)}{value}", "        ").strip()
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        name = node.targets[0].id
        return "" if name.startswith("_") or name == "model_config" else ast.unparse(node)
    return ""


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Every argument as written, without `self` and `cls`."""
    spec = node.args
    positional = [*spec.posonlyargs, *spec.args]
    missing = [None] * (len(positional) - len(spec.defaults))
    shown = [_argument(a, d) for a, d in zip(positional, [*missing, *spec.defaults], strict=True)]
    if positional and positional[0].arg in {"self", "cls"}:
        shown = shown[1:]
    if spec.vararg:
        shown.append(f"*{_argument(spec.vararg, None)}")
    elif spec.kwonlyargs:
        shown.append("*")
    shown += [_argument(a, d) for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
    if spec.kwarg:
        shown.append(f"**{_argument(spec.kwarg, None)}")
    return shown


def _argument(node: ast.arg, default: ast.expr | None) -> str:
    text = f"{node.arg}: {ast.unparse(node.annotation)}" if node.annotation else node.arg
    if default is None:
        return text
    return f"{text} = {ast.unparse(default)}" if node.annotation else f"{text}={default}"


def _wrapped(head: str, arguments: list[str], tail: str) -> str:
    line = head + ", ".join(arguments) + tail
    if len(line) <= _WIDTH or not arguments:
        return line
    return "\n".join([head, *(f"    {argument}," for argument in arguments), tail])


def _members(module: str, node: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Public methods and properties, those of private bases in this project included."""
    seen = set()
    for member in _own_members(node):
        if not member.name.startswith("_"):
            seen.add(member.name)
            if not _is_setter(member):
                yield member
    for base in (b.value if isinstance(b, ast.Subscript) else b for b in node.bases):
        if not isinstance(base, ast.Name) or base.id in public_names(module):
            continue
        found = _follow(module, base.id)
        private = found.module.rpartition(".")[2].startswith("_") or base.id.startswith("_")
        if private and isinstance(found.node, ast.ClassDef):
            yield from (m for m in _members(found.module, found.node) if m.name not in seen)


def _own_members(node: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for item in node.body:
        if not isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) or _is_overload(item):
            continue
        if not item.name.startswith("test_"):  # of a suite: its name is its description
            yield item


def _decorators(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {ast.unparse(item).partition("(")[0] for item in node.decorator_list}


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return bool(_decorators(node) & {"property", "cached_property"})


def _is_overload(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return "overload" in _decorators(node)


def _is_setter(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(name.endswith(".setter") for name in _decorators(node))


def public_modules() -> frozenset[str]:
    """All modules whose `__all__` is public."""
    rooms = tomllib.loads(PUBLIC.read_text(encoding="utf-8"))
    return frozenset(
        name for room in rooms.values() if "modules" in room for name in room["modules"]
    )


def is_module(name: str) -> bool:
    """Tell if the source of a module is in the repository."""
    base = ROOT.joinpath(*name.split("."))
    return (base / "__init__.py").is_file() or base.with_suffix(".py").is_file()


@cache
def _tree(module: str) -> ast.Module:
    base = ROOT.joinpath(*module.split("."))
    path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def public_names(module: str) -> tuple[str, ...]:
    """Return the names in `__all__`, without dunders; none if there is no such list."""
    for node in _tree(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names = ast.literal_eval(node.value)
            return tuple(name for name in names if not name.startswith("__"))
    return ()


def _follow(module: str, name: str) -> Found:
    """Return the definition of `module.name`, through imports within the project."""
    for node in ast.walk(_tree(module)):
        if isinstance(node, _DEFINITIONS) and node.name == name:
            return Found(module, name, node)
        if isinstance(node, ast.ImportFrom) and node.module:
            alias = next((a for a in node.names if (a.asname or a.name) == name), None)
            if alias and node.module.startswith(("tubemq_", "pyspark_tubemq")):
                found = _follow(node.module, alias.name)
                return Found(found.module, name, found.node)
    return Found(module, name, None)


def main() -> int:
    """Write the pages; prints every problem."""
    rooms = tomllib.loads(PUBLIC.read_text(encoding="utf-8"))
    also = rooms.pop("also")
    reference = Reference()
    reference.add_index({name: room["title"] for name, room in rooms.items()}, also)
    for name, room in rooms.items():
        reference.add_page(name, room["title"], room["modules"])
    reference.add_arguments()
    shutil.rmtree(PAGES, ignore_errors=True)
    PAGES.mkdir(parents=True)
    for name, text in reference.pages.items():
        (PAGES / name).write_text(text, encoding="utf-8")
    figures = f"{len(reference.pages)} pages, {len(reference.problems)} problems"
    print("\n".join([*reference.problems, f"reference: {figures}"]))
    return 1 if reference.problems else 0


if __name__ == "__main__":
    sys.exit(main())
