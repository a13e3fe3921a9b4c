import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubemq_client import Partition


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_a_key_parses_as_its_partition(broker: int, partition: int) -> None:
    original = Partition(broker, "orders", partition)

    assert Partition.from_key("orders", original.key) == original


@pytest.mark.parametrize(
    "key", ["01:0", "1:00", "1:01", "+1:0", "1", "1:", ":1", "1:0:0", "\u0661:0", "1:0\n"]
)
def test_no_partition_has_a_second_spelling(key: str) -> None:
    with pytest.raises(ValueError, match="<broker id>:<partition id>"):
        Partition.from_key("orders", key)
