#!/usr/bin/env python3
"""Sum up ctest's JUnit file: print every failure and every skip with its reason, then 'passed failed skipped'.

    ctest_summary.py LABEL JUNIT.xml

A test tells why it skips in a line that begins with SKIP. The last line of output has the three counts.
"""

import sys
import xml.etree.ElementTree as ElementTree


def main():
    label, path = sys.argv[1:]
    passed = failed = skipped = 0
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name, status = case.get("name"), case.get("status")
        output = case.findtext("system-out") or ""
        # "notrun" without a skip message is a test whose program is missing: a failure, not a skip.
        skip = case.find("skipped")
        if status == "run":
            passed += 1
        elif skip is not None and skip.get("message", "").startswith(("SKIP_", "Skip")):
            skipped += 1
            reasons = [line.strip() for line in output.splitlines() if line.strip().startswith("SKIP")]
            print(f"SKIP {label}/{name}: {reasons[0][4:].lstrip(': ') if reasons else 'no reason given'}")
        else:
            failed += 1
            print(f"FAIL {label}/{name} ({status}); the end of its output:")
            for line in output.splitlines()[-25:]:
                print(f"    {line}")
    print(passed, failed, skipped)


main()
