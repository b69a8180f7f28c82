"""What people look at: the fleet's status as JSON, the stream of it, the page at `/`.

`snapshot` says what the JSON is, `history` turns counters into rates, `feed` makes both once a second for all watchers
together, `stream` is one watcher's response, `page` serves the static files.
"""
