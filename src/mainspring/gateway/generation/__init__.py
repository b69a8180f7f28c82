"""From a request for text to what its client gets: prompt, lease, reply, usage. A surface's shape is its route's."""
