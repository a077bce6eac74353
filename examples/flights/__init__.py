"""A year of real flights, replayed over a cluster whose aircraft keep moving.

Every aircraft that left New York in 2013 is an Instance Spot made by its first message; every flight is
one message. While the stream runs, aircraft are moved between nodes and whole nodes are emptied; at the
end each aircraft is compared with a direct computation over the file.

Run it with `make demo`, or `python -m examples.flights --help` from the project root.
"""
