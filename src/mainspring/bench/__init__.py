"""The measuring harness behind every number this project states; scripts that use it live in top-level `bench/`.

`measure(arms, options, title=..., unit=...)` returns a `Report`. `mainspring.bench.cli` has the
scripts' shared options.
"""

from mainspring.bench.harness import Arm, Host, measure
from mainspring.bench.report import Options, Report
from mainspring.bench.stats import Sample

__all__ = ["Arm", "Host", "Options", "Report", "Sample", "measure"]
