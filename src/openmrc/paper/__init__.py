"""The published experiments, rerun: `mrc paper`.

Each experiment is one or a few scenario files (`scenario/files/paper/`), the published value, the
value measured here over several seeds, and a verdict by a tolerance that is stated before the run.
`command` runs them through `sweeps` and `page` writes the results.
"""

__all__ = [
    "command",
]
