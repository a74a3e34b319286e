"""Runs: tasks that write a log, and the log that everybody else reads."""
