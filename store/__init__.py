"""Location and Relocation Stores: in memory, SQLite, Redis."""
