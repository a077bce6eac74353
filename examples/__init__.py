"""Programs that show Sojourn at work. Run them from the project root."""
