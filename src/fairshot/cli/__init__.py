"""The command line: the only place that knows all rooms. One file a group of commands."""
