from hypothesis import given
from hypothesis import strategies as st

from tubemq_client import Partition
from tubemq_provider.sources.tubemq.space import SPACE


@given(st.from_regex(r"[0-9]{1,3}:[0-9]{1,3}", fullmatch=True) | st.text(max_size=6))
def test_options_and_documents_know_the_same_keys(key: str) -> None:
    try:
        Partition.from_key("orders", key)
    except ValueError:
        assert not SPACE.is_key(key)
    else:
        assert SPACE.is_key(key)
