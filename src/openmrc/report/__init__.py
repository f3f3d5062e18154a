"""What people look at: table, picture, page, progress bar and the results directory."""
