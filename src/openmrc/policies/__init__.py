"""Users' policies, before they run: what they see, and what is wrong with them."""

__all__ = [
    "check",
    "fields",
]
