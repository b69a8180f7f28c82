"""Token arrays of requests from submit to answer, counted against one byte cap; a request beyond it is contention.

Cuts the wire `Part` of a core `Part` from them: the view's tokens that are to be scanned, branches and labels of a
range, `parent` of a part that shares a view, `more` while chunks follow. Slices of bytes, no arrays, no copies but the
frame's.
"""
