"""The published experiments, rerun: `mrc paper`.

Each experiment is one or a few scenario files (`scenario/files/paper/`), the number that was
published, what is measured here over several seeds, and a verdict by a tolerance that is written
down before the run. `command` runs them through `sweeps` and `page` writes what came of it.
"""
