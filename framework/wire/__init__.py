"""Bytes of the relocation contract: envelope, commands and keys."""
