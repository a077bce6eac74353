"""Sessions of moving Actors (relocation.md section 7, B11): the seal at the session owner, and the talk with it.

Pure machines in the manner of `sojourn.handoff`: events in, effects out, no I/O and no clock.
"""
