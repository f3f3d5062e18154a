"""One file an experiment, or a family of them: what was published, what is run, the verdict."""
