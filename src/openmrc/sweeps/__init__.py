"""Many runs of one scenario, on all cores or a cluster, into one Parquet data set."""

__all__ = [
    "command",
    "dataset",
    "plan",
    "sweep",
]
