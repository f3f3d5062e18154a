"""One file per experiment, or family of experiments: what was published, what is run, the
verdict.
"""
