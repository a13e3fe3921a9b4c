"""What clients say of their machine and process: address, ids."""

from __future__ import annotations

import os
import re
import time
from ipaddress import ip_address

import pytest

from tubemq_client._io.host import client_ids, local_ipv4, signed_ipv4


def test_ids_name_group_address_process_time_number_and_kind() -> None:
    before = time.time_ns() // 1_000_000
    consumer = client_ids().consumer("billing", "Balance")
    producers = [client_ids().producer(), client_ids().producer()]

    form = r"billing_([\d.]+)-(\d+)-(\d+)-(\d+)-Balance-py-[\d.]+\w*"
    found = re.fullmatch(form, consumer)
    assert found is not None, consumer
    assert (found[1], int(found[2])) == (local_ipv4(), os.getpid())
    assert before <= int(found[3]) <= time.time_ns() // 1_000_000
    assert len({*producers, consumer}) == 3, "each client of a process has its own"


def test_the_machines_address_is_ipv4_and_not_any() -> None:
    address = ip_address(local_ipv4())
    assert (address.version, address.is_unspecified) == (4, False)


@pytest.mark.parametrize(
    ("host", "number"), [("127.0.0.1", 2_130_706_433), ("192.168.0.1", -1_062_731_775)]
)
def test_addresses_are_signed_numbers(host: str, number: int) -> None:
    assert signed_ipv4(host) == number
