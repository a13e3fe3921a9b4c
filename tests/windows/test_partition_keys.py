from hypothesis import given
from hypothesis import strategies as st

from tubemq_client import Partition
from tubemq_provider.windows._plan_document import valid_key


@given(st.from_regex(r"[0-9]{1,3}:[0-9]{1,3}", fullmatch=True) | st.text(max_size=6))
def test_options_and_documents_know_the_same_keys(key: str) -> None:
    try:
        Partition.from_key("orders", key)
    except ValueError:
        assert not valid_key(key)
    else:
        assert valid_key(key)
