"""What people see while code runs: progress bars, streams of a command, and cells of a notebook."""
