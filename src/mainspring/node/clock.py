"""Monotone seconds that go on while the machine is suspended: CLOCK_BOOTTIME on Linux, CLOCK_MONOTONIC on macOS.

The one place in `node/` that reads a clock; everything else is given `now_s`.
"""
