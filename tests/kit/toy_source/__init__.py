"""A third kind of source, as another distribution would bring it: files with a record a line.

A cluster is a directory, a topic a directory in it, a partition a file ``<place>.<number>``; an
offset is the number of a line. Nothing of the provider knows it.
"""
