"""Rows: from record bodies to typed columns, a batch at a time.

`spec` is what a user says (`decode=`), `ddl` the schemas, `decoding` what engines call; each
`from_…` module knows one format. Nothing here reads a broker, writes a file or imports pyspark;
pyarrow and parsers are imported where they are used. Tasks on executors import this room.
"""

from tubemq_provider.rows.decoding import RowDecoder
from tubemq_provider.rows.spec import DecodeSpec

__all__ = ["DecodeSpec", "RowDecoder"]
