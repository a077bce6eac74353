"""Objects inside one event loop: Actors, Spots, handlers, mailboxes, turns, timers, capture and restore."""
