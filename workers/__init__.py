"""Processes, links, routing and relocation: everything that does I/O."""
