"""Every test has exactly one cost label (cmake/GradwireTest.cmake): test_costs.py CTEST BUILD-DIRECTORY"""

import json
import subprocess
import sys

COSTS = {"cost-fast", "cost-medium", "cost-slow"}


def main():
    listing = subprocess.run(
        [sys.argv[1], "--test-dir", sys.argv[2], "--show-only=json-v1"], stdout=subprocess.PIPE, check=True
    )
    tests = json.loads(listing.stdout)["tests"]
    without = []
    for test in tests:
        properties = {p["name"]: p["value"] for p in test["properties"]}
        if len(COSTS.intersection(properties.get("LABELS", []))) != 1:
            without.append(test["name"])
    print(f"{len(tests)} tests; without one cost label: {' '.join(without) or 'none'}")
    return 1 if without or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
