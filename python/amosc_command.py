"""amosc_command.py: the command amosc of the wheel. It is no part of the package, whose import
takes longer than a command."""

import os
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "amosc", "bin", "amosc")
    os.execv(program, ["amosc", *sys.argv[1:]])
