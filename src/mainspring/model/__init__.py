"""Plain networks, one file an architecture, with their config readers and loaders."""
