"""Output for people: table, picture, page, progress bar and the results directory."""

__all__ = [
    "compare",
    "directory",
    "estimate",
    "files",
    "picture",
    "progress",
    "result",
    "table",
]
