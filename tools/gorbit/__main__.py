"""The command line: gorbit, gorbit-predict, and the demo, which only this package has."""

from __future__ import annotations

import sys

from gorbit import programs


def main() -> int:
    """Becomes gorbit with the arguments, or runs the demo."""
    if sys.argv[1:2] == ["demo"]:
        from gorbit import demo

        return demo.main(sys.argv[2:])
    return programs.execute("gorbit", sys.argv[1:])


def predict() -> int:
    """Becomes gorbit-predict with the arguments."""
    return programs.execute("gorbit-predict", sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
