"""Local nodes as child processes: started with certificates made for them, restarted with backoff, given up in a loop.

`Supervisor` decides without a clock (exit -> restart in so many seconds, or give up after five in a minute); a thin
asyncio part starts processes, keeps their logs in rotated files and tells the shell of an exit, so that a dead child is
a crash at once and not after the idle timeout. Children die with their parent.
"""
