"""What this machine's own device does: step times, bandwidth, GEMM rate, launches, all-reduce.

torch is imported where it is called; ``document``, ``shapes`` and ``grid`` do without it.
"""

FILE = "probe.json"  # the file of a folder that the probe writes
