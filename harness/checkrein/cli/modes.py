"""The modes of the terminal that lines are typed at; nothing where there are none (Windows, no terminal)."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["hands_over_lines", "modes", "restore"]


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
