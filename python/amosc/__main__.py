"""python -m amosc: the command amosc."""

from amosc_command import main

main()
