"""The operator's page: a fabric, its links by health, and what broke when, as one file."""
