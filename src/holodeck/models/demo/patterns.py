"""How the tables of this package write regular expressions: alternatives as a list, case ignored."""

import re


def one_of(*alternatives: str) -> str:
    return f"(?:{'|'.join(alternatives)})"


def pattern(*alternatives: str) -> re.Pattern[str]:
    return re.compile(one_of(*alternatives), re.IGNORECASE)
