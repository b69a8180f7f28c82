"""The page at `/` and the snapshot that it shows."""
