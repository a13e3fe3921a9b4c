"""`tools/language`: words are refused with advice, renames are applied and proved."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.language.locals import rename
from tools.language.names import Names, renamed_source
from tools.language.same_tree import plain
from tools.language.words import problems

OLD = '''"""What a file is."""

from room.pieces import Piece

def settle(piece):
    """Where it ends."""
    # `settle` is told whoever asks, and so is set_aside.
    raise ValueError(f"settle {piece.set_aside} anew", "settle")
'''

RENAMES = {"settle": "confirm", "set_aside": "quarantined", "pieces": "subranges"}


def lines(tmp_path: Path, name: str, text: str) -> list[str]:
    path = tmp_path / name
    path.write_text(text)
    return [str(problem).removeprefix(f"{path}:") for problem in problems([path])]


def test_openings_and_words_are_found_with_their_line_and_advice(tmp_path: Path) -> None:
    found = lines(tmp_path, "old.py", OLD)
    assert [line.split(": ")[0] for line in found] == ["1", "6", "7", "7"]
    assert "begins with 'What'" in found[0]
    assert "'is told' (write: receives, is given)" in found[2]


def test_pages_are_searched_outside_of_their_code(tmp_path: Path) -> None:
    page = "A log made\nanew.\n\n```python\nprint('anew')\n```\n\nwhoever\n"
    assert [line.split(" (")[0] for line in lines(tmp_path, "page.md", page)] == [
        "1: 'made anew'",
        "8: 'whoever'",
    ]


def test_names_are_replaced_in_code_and_words_of_sentences_are_not() -> None:
    new = renamed_source(OLD, RENAMES)
    assert "from room.subranges import Piece" in new
    assert "def confirm(piece):" in new
    assert "# `confirm` is told whoever asks, and so is quarantined." in new
    assert 'f"settle {piece.quarantined} anew", "confirm"' in new


def test_a_rename_is_proved_and_a_changed_condition_is_not() -> None:
    new = renamed_source(OLD, RENAMES).replace("What a file is", "File of this test")
    assert plain(OLD, RENAMES, None) == plain(new, {}, None)
    assert plain(OLD, RENAMES, None) != plain(new.replace("raise", "return"), {}, None)
    reworded = new.replace(" anew", " again")
    assert plain(OLD, RENAMES, None) != plain(reworded, {}, None)
    texts: list[str] = []
    assert plain(OLD, RENAMES, []) == plain(reworded, {}, texts)
    assert any("again" in text for text in texts)


def test_the_order_of_imports_and_of_public_names_may_change() -> None:
    old = "from a import c, b\nimport z\n\n__all__ = ['c', 'b']\nb(c)\n"
    new = "import z\nfrom a import b, d\n\n__all__ = ['b', 'd']\nb(d)\n"
    assert plain(old, {"c": "d"}, None) == plain(new, {}, None)
    assert plain(old, {}, None) != plain(old.replace("b(c)", "c(b)"), {}, None)


@pytest.mark.parametrize(
    ("old", "new"),
    [("a/b.py", "c/b.py"), ("a/x/y.py", "c/x/y.py"), ("ab.py", "ab.py"), ("one.py", "two.py")],
)
def test_files_and_folders_are_renamed_by_path(old: str, new: str) -> None:
    assert Names(files={"a": "c", "one.py": "two.py"}).path(old) == new


FUNCTION = """
def read(known, wanted=1):
    found = [known for known in known if known]
    def later():
        return found, f"{found!r} of {wanted.found} found"
    return later, dict(found=found), wanted.found
"""


def test_a_local_variable_is_renamed_where_it_is_used_and_nowhere_else() -> None:
    new = rename(FUNCTION, "read", "found", "records")
    assert "records = [known" in new
    assert 'return records, f"{records!r} of {wanted.found} found"' in new
    assert "dict(found=records), wanted.found" in new


def test_another_local_name_is_proved_and_another_variable_is_not() -> None:
    new = rename(FUNCTION, "read", "found", "records")
    assert plain(FUNCTION, {}, None) != plain(new, {}, None)
    assert plain(FUNCTION, {}, None, local_names=True) == plain(new, {}, None, local_names=True)
    other = new.replace("dict(found=records)", "dict(found=later)")
    assert plain(FUNCTION, {}, None, local_names=True) != plain(other, {}, None, local_names=True)
    with pytest.raises(ValueError, match="would change the program"):
        rename(FUNCTION, "read", "wanted", "records")
    with pytest.raises(ValueError, match="used in read already"):
        rename(FUNCTION, "read", "found", "known")


def test_tables_are_one_and_the_first_that_names_a_place_decides(tmp_path: Path) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text(
        '[names]\nsettle = {new = "confirm", in = ["a/"]}\n'
        '[files]\n"a/pieces.py" = "a/subranges.py"\n'
    )
    second.write_text(
        "[names]\n"
        'settle = [{new = "infer", in = ["b/"]}]\n'
        'eroded = {new = "lost", in = ["a/"], texts = false}\n'
        '"x.life()" = {new = "x.lookup()", in = ["a/"]}\n'
    )
    names = Names.read(first, second)
    assert names.within("a/one.py") == {"settle": "confirm"}
    assert names.within("b/one.py") == {"settle": "infer"}
    old = 'from a.pieces import eroded\nfrom a import pieces\npieces.eroded(x.life())\n"eroded"\n'
    new = "from a.subranges import lost\nfrom a import subranges\nsubranges.lost(x.lookup())\n"
    assert names.prepared("a/one.py", old) == f'{new}"eroded"\n'
    assert names.moved("see `a/pieces.py`") == "see `a/subranges.py`"
