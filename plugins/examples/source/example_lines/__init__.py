"""Source ``text_lines``: a directory is a cluster, a folder in it a topic, a file ``p<n>`` a
partition.

An offset is the number of a line.
"""
