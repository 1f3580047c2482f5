"""Runs check_PART.py; skipped without NumPy.

run_check.py PART CLASSIC_CALLS SAMPLES
"""

import importlib.util
import os
import runpy
import sys


def main():
    if importlib.util.find_spec("numpy") is None:
        print("SKIP no NumPy (scripts/deps test installs Debian's)")
        return 77
    part = sys.argv.pop(1)
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, here)
    runpy.run_path(os.path.join(here, f"check_{part}.py"), run_name="__main__")


if __name__ == "__main__":
    sys.exit(main())
