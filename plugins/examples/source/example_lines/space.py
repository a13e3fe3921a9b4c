"""Keys ``p0``, ``p1`` …; each partition is a separate log, and offsets count lines."""

from tubemq_provider.sources.counting import counting_space

SPACE = counting_space("text_lines", key="p[0-9]+")
