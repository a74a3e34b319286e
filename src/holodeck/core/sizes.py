"""Units of sizes. A megabyte is a million bytes in every setting, message and page."""

KIB = 1024
MB = 1_000_000
