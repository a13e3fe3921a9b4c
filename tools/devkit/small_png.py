"""Shrinks screenshots: a PNG of at most 256 colours, which is enough for a web page.

The browser that took a picture counts and maps its colours, as it decodes PNG already; this module
writes a file with a palette from that. Nothing else is needed.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tools.devkit.browser import Tab

__all__ = ["small", "small_picture"]

_MAP = """(async () => {
  const image = new Image();
  image.src = "data:image/png;base64,%s";
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width, image.height];
  const drawing = canvas.getContext("2d");
  drawing.drawImage(image, 0, 0);
  const data = drawing.getImageData(0, 0, image.width, image.height).data;
  const counts = new Map();
  const colour = (at) => (data[at] << 16) | (data[at + 1] << 8) | data[at + 2];
  for (let at = 0; at < data.length; at += 4) {
    counts.set(colour(at), (counts.get(colour(at)) || 0) + 1);
  }
  const kept = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 256).map(([found]) => found);
  const parts = (found) => [found >> 16, (found >> 8) & 255, found & 255];
  const nearest = new Map(kept.map((found, index) => [found, index]));
  for (const found of counts.keys()) {
    if (nearest.has(found)) continue;
    let [best, least] = [0, Infinity];
    kept.forEach((other, index) => {
      const far = parts(found).reduce((sum, part, n) => sum + (part - parts(other)[n]) ** 2, 0);
      if (far < least) [best, least] = [index, far];
    });
    nearest.set(found, best);
  }
  let indices = "";
  for (let at = 0; at < data.length; at += 4) {
    indices += String.fromCharCode(nearest.get(colour(at)));
  }
  return [image.width, image.height, kept.flatMap(parts), btoa(indices)];
})()"""


def small(tab: Tab, picture: bytes) -> bytes:
    """Return the picture in its 256 most frequent colours. `tab` must show a page that allows
    images of data URLs, such as ``about:blank``."""
    width, height, palette, encoded = tab.evaluate(_MAP % base64.b64encode(picture).decode())
    pixels = base64.b64decode(encoded)
    rows = b"".join(b"\0" + pixels[row * width : (row + 1) * width] for row in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"PLTE", bytes(palette)), (b"IDAT", zlib.compress(rows, 9))]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in [*chunks, (b"IEND", b"")])


def small_picture(tab: Tab, path: Path) -> None:
    """Save the window's content as a small PNG. Leaves the page."""
    tab.picture(path)
    tab.go("about:blank")
    path.write_bytes(small(tab, path.read_bytes()))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
