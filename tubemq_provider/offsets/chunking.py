"""Chunking of documents that are too long for one value: compressed chunks and a short head.

Airflow advises against values above 64 KB, and its REST API refuses them. A plan reaches that with
somewhat more than 1 000 partitions; compressed, one of 10 000 is half as long. Chunks are named
after the digest of the whole text and written first; the head, written last, is the commit pointer:
a reader gets the old document or the new one and never a mixture. Pure functions; stores do the
reading and writing.
"""

from __future__ import annotations

import base64
import json
import lzma
from collections.abc import Callable, Sequence
from typing import Any, Final

from tubemq_provider.windows.canonical import canonical_json, sha256_hex
from tubemq_provider.windows.errors import DocumentError
from tubemq_provider.windows.protocols import Document

__all__ = ["PIECE_BYTES", "ChunksMissing", "chunk_names", "join", "split"]

PIECE_BYTES: Final = 60_000
"""Most bytes of a value that a store writes."""

_WRAPPING: Final = 100

_HEAD = "tubemq_pieces"

_XZ: Final = "xz"
"""Word in a head whose chunks are XZ in base 85, which needs no escapes in JSON. Heads without it
have chunks of plain text."""


class ChunksMissing(DocumentError):
    """Chunks of a long document are missing after several reads, although its head exists.

    `rev` is the revision of the head (0 for a store without revisions)."""

    def __init__(self, subject: str, rev: int = 0) -> None:
        self.rev = rev
        super().__init__(subject, ["pieces of it are missing"])


def split(document: Document) -> tuple[Document, dict[str, Document]]:
    """Return the value to store under the document's key, and chunks by name (none if short).

    Raises `TypeError` for values that some store would alter, such as floats.
    """
    text = canonical_json(document)
    if len(json.dumps(document)) <= PIECE_BYTES:
        return document, {}
    packed = base64.b85encode(lzma.compress(text.encode())).decode()
    step = PIECE_BYTES - _WRAPPING
    chunks = [packed[start : start + step] for start in range(0, len(packed), step)]
    about = {"count": len(chunks), "sha256": sha256_hex(text), "packed": _XZ}
    head: Document = {_HEAD: about}
    names = chunk_names(head)
    return head, {name: {"text": chunk} for name, chunk in zip(names, chunks, strict=True)}


def chunk_names(head: object) -> list[str]:
    """Return names of the chunks of `head`; none for a document that is whole, or for None. A head
    that was edited and is invalid has none, so that its reader reports the error."""
    about = head.get(_HEAD) if isinstance(head, dict) else None
    if not isinstance(about, dict):
        return []
    count, digest = about.get("count"), about.get("sha256")
    if type(count) is not int or not isinstance(digest, str):
        return []
    return [f"{digest[:16]}/{number}" for number in range(count)]


def join(head: Document, pieces: Sequence[Any], where: str) -> Document:
    """Return the document of these chunks. Raises `DocumentError` if they do not fit together."""
    text = "".join(str(piece.get("text")) for piece in pieces if isinstance(piece, dict))
    if head[_HEAD].get("packed") == _XZ:
        try:
            text = lzma.decompress(base64.b85decode(text)).decode()
        except (ValueError, lzma.LZMAError) as error:
            raise DocumentError(where, [f"its pieces cannot be unpacked: {error}"]) from error
    if sha256_hex(text) != head[_HEAD]["sha256"]:
        raise DocumentError(where, ["its pieces do not make up the document its head names"])
    document: Document = json.loads(text)
    return document


def read_whole(read: Callable[[str], Any], key: str, head: Any) -> Document | None:
    """Return the document of `head`, with its chunks read from ``<key>~<name>``. None if one is
    missing, as happens if the document was replaced between two reads."""
    names = chunk_names(head)
    if not names:
        whole: Document = head
        return whole
    chunks = [read(f"{key}~{name}") for name in names]
    return None if None in chunks else join(head, chunks, key)
