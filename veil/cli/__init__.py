"""The command line: one file per command, each a thin coat around one function of the library."""
