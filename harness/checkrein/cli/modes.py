"""The terminal that lines are typed at: whether there is one, and its modes; none on Windows or without one."""

from __future__ import annotations

import sys
from typing import Any, TextIO

__all__ = ["hands_over_lines", "is_terminal", "modes", "restore"]


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is open and a terminal."""
    try:
        return stream is not None and stream.isatty()
    except (OSError, ValueError):  # closed, or not a file at all
        return False


def modes() -> Any:
    """The terminal's modes, to be put back if the program ends while a line is being edited."""
    try:
        import termios

        return termios.tcgetattr(sys.stdin.fileno())
    except (ImportError, OSError, ValueError):
        return None


def hands_over_lines(fd: int) -> bool:
    """Whether the terminal hands over whole lines, as it does while nobody edits one."""
    try:
        import termios
    except ImportError:
        return False
    try:
        return bool(termios.tcgetattr(fd)[3] & termios.ICANON)
    except termios.error:
        return False


def restore(modes: Any) -> None:
    """Put the terminal's modes back; None is none."""
    if modes is None:
        return
    import termios

    try:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, modes)
    except (OSError, ValueError, termios.error):  # the terminal is gone
        pass
