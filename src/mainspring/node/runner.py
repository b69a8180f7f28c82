"""The one place that touches the engine: takes the agenda's next step and runs it in the one worker thread.

The next pass is decoded and checked on the loop while one runs, so the device does not wait for it. A window is counted
from arrival, less the link's `age_s` and half its smallest round trip; too late is `late`, never run. Whatever is
raised fails its pass with a typed reason: out of memory empties the view store and tries nothing again by itself.
Results are looked at for NaN and infinity before they leave. Time is an argument; the thread and its queue are all the
asyncio here.
"""
