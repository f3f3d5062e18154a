"""Output for people: table, picture, page, progress bar and the results directory."""
