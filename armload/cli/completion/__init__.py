"""What a shell offers on TAB: within milliseconds, so nothing here imports the program."""
