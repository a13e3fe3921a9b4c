"""`tools.devkit.patience`: limits grow with the load, or by what the variable holds."""

from __future__ import annotations

import pytest

from tools.devkit.patience import LARGEST, VARIABLE, patience


@pytest.mark.parametrize(
    ("load", "processors", "factor"),
    [(0.1, 2, 1.0), (2.0, 2, 1.0), (8.0, 2, 4.0), (99, 2, LARGEST)],
)
def test_the_load_for_each_processor_decides(load: float, processors: int, factor: float) -> None:
    assert patience({}, load, processors) == factor


def test_the_variable_decides_where_it_is_set() -> None:
    assert patience({VARIABLE: "2.5"}, load=99, processors=1) == 2.5


@pytest.mark.parametrize("text", ["0", "-1", "nan", "many"])
def test_a_variable_that_is_no_factor_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=f"{VARIABLE}='{text}': give a number of at least 1"):
        patience({VARIABLE: text}, load=0, processors=2)
