"""The handoff machines: one unit's move, without I/O, clock or randomness.

`source.SourceHandoff` and `target.TargetHandoff` are the two halves of one move; `rivals` judges between
two identities at one target; `path.SenderPath` keeps a sender's order while an object moves. What a driver
reports and carries out stands in `events` and `effects`, the values they carry in `terms`.
"""
