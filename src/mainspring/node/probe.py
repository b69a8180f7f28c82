"""Cost constants by measurement: a schedule of shapes, and what is known so far.

A generator of shapes (views 500 to 18,000, 1 to 256 branches, several requests a pass) that is told each time and can
be asked for `Cost` and anchors at any moment: within 5 s a `provisional` answer, better ones in idle time. Pure: the
runner runs the shapes, the clock is its. Reuses `core.cost.fit`.
"""
