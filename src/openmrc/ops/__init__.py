"""What operators hold: switches configured from one file, and what a fabric tells of itself."""
