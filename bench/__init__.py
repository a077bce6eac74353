"""Measures Sojourn beside what this machine can do at best. `make bench`, or `python -m bench --help`.

Three things run in one go, so that the noise of the machine hits all of them: a raw uvloop
request/reply between two processes, bare processes that only forward in the same topology, and a
Sojourn cluster.
"""
