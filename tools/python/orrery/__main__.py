"""python3 -m orrery: the program itself."""

import sys

from . import _orrery


def main():
    return _orrery.run_program([_orrery.__file__, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
