# The compiled decoder of replies and bodies, built from `native/`; optional. Its names are those of
# protobuf where it replaces a message. Only `_wire.native` and the provider's `rows.compiled` may
# import it; their references are `_core.columns` and the decoders of `tubemq_provider.rows`.

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

VERSION: str

class Record:
    messageId: int
    checkSum: int
    payLoadData: bytes
    flag: int

class ArrowStruct:
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

class Decoded:
    def __len__(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def positions(self) -> list[int] | None: ...
    def bodies(self) -> list[bytes]: ...
    def attributes(self) -> list[bytes | None]: ...
    def message_ids(self) -> list[int]: ...
    def arrow(
        self, names: Sequence[str], topic: str, partition: str, start: int, exact: bool
    ) -> ArrowStruct | None: ...

class Records:
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Record: ...
    def __iter__(self) -> Iterator[Record]: ...
    @property
    def nbytes(self) -> int: ...
    def find(self, message_id: int, checksum: int) -> int | None: ...
    def decode(self, count: int, wanted: AbstractSet[str]) -> Decoded | None: ...

class Reply:
    success: bool
    errCode: int
    errMsg: str
    messages: Records
    currOffset: int
    minLimitTime: int
    escFlowCtrl: bool
    currDataDlt: int
    requireSlow: bool
    maxOffset: int
    def HasField(self, name: str) -> bool: ...

def scan(data: Any) -> Reply | None: ...

class Rows:
    def array(self) -> object: ...

class Reader:
    def __init__(
        self,
        kind: str,
        table: object,
        skip: int = 0,
        mark: bytes = b"",
        places: Sequence[bytes] = (),
    ) -> None: ...
    def read(
        self, offsets: object, data: object, first: int, count: int
    ) -> tuple[Rows, list[int]] | None: ...

def unpack(
    offsets: object, data: object, first: int, count: int, most_records: int
) -> tuple[Rows, list[bytes], list[int], list[int]] | None: ...
