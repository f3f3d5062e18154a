"""What is watched while a world runs, and the books that must balance."""
