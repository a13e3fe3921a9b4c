"""A third kind of source, as another distribution would provide it: files with a record per line.

A cluster is a directory, a topic a directory in it, a partition a file ``<place>.<number>``; an
offset is the number of a line. Nothing of the provider knows it.
"""
