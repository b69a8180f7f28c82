"""Published schedulers to compare with, each behind the router's own interface: `handle` and `next_deadline`."""
