"""The registry src/core/backends.def, for scripts. As a program: prints the names of the CPU backends."""

import os
import re

PATH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src/core/backends.def")


def rows(kind):
    """[(name, title)], most generic first."""
    with open(PATH, encoding="utf-8") as f:
        return re.findall(rf'^{kind}_BACKEND\(\d, (\w+), \w+, "([^"]+)"\)$', f.read(), re.M)


def cpu():
    return rows("GW_CPU")


def every():
    return cpu() + rows("GW_DEVICE")


if __name__ == "__main__":
    print(*(name for name, _ in cpu()))
