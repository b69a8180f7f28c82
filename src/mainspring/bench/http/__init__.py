"""Open-loop load on an HTTP service: bodies (`traffic`), times (`arrivals`), sending (`sender`), `figures`."""
