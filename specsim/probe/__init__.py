"""What this machine's own device does: step times, bandwidth, GEMM rate, launches, all-reduce.

The modules that name torch (``device``, ``layers``, ``rates``, ``allreduce``) import it when they
are called; the others (``shapes``, ``grid``, ``timing``, ``document``) do without it.
"""

FILE = "probe.json"
"""The file of a folder that the probe writes."""
