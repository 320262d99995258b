"""Terminal styles: SGR escape sequences (ECMA-48 section 8.3.117)."""

from __future__ import annotations

RESET = "\x1b[0m"
BOLD = "\x1b[1m"

COLORS = {
    "black": 30,
    "red": 31,
    "green": 32,
    "yellow": 33,
    "blue": 34,
    "magenta": 35,
    "cyan": 36,
    "white": 37,
    "bright_black": 90,
    "bright_red": 91,
    "bright_green": 92,
    "bright_yellow": 93,
    "bright_blue": 94,
    "bright_magenta": 95,
    "bright_cyan": 96,
    "bright_white": 97,
}


def style(text: str, fg: str | None = None, bold: bool = False) -> str:
    """Wrap ``text`` in the sequences for a foreground colour and bold, and the reset behind it.

    Raises:
        KeyError: ``fg`` is not one of ``COLORS``.
    """
    color = f"\x1b[{COLORS[fg]}m" if fg is not None else ""
    return f"{color}{BOLD if bold else ''}{text}{RESET}"
