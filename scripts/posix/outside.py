#!/usr/bin/env python3
"""Results of suites as lines of a case, a tab, and pass, fail or skip; and their comparison (by outside.sh).

    outside.py junit FILE                  lines from JUnit's XML
    outside.py go PACKAGE FILE             lines from the output of a Go test with -test.v
    outside.py compare TITLE EXT4 OURS     counts, the cases that ended worse here; fails where there are any
"""
import collections
import re
import sys
import xml.etree.ElementTree

ORDER = ("pass", "skip", "fail")
# Cases that cannot run here, and why: printed each time, and not a failure.
CANNOT = {"fiemap": "Linux does not pass FS_IOC_FIEMAP to FUSE"}


def junit(path):
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        skipped = "skipped" in kinds or case.get("result") == "skipped" or case.get("status") == "notrun"
        status = "fail" if kinds & {"error", "failure"} else "skip" if skipped else "pass"
        yield " ".join(case.get("name", "?").split()), status


def go(package, path):
    words = {"PASS": "pass", "FAIL": "fail", "SKIP": "skip"}
    ended = False
    with open(path, errors="replace") as lines:
        for line in lines:
            found = re.match(r"\s*--- (PASS|FAIL|SKIP): (\S+)", line)
            if found:
                yield f"{package} {found[2]}", words[found[1]]
            ended |= line.rstrip() in ("PASS", "FAIL")
    yield f"{package} (its end)", "pass" if ended else "fail"


def load(path):
    """The worst end of each case: some run several times under one name."""
    ends = {}
    with open(path) as lines:
        for line in lines:
            case, status = line.rstrip("\n").rsplit("\t", 1)
            ends[case] = max(ends.get(case, "pass"), status, key=ORDER.index)
    return ends


def compare(title, theirs, ours):
    theirs, ours = load(theirs), load(ours)

    def listed(ends):
        count = collections.Counter(ends.values())
        return ", ".join(f"{count[status]} {status}" for status in ORDER)

    print(f"{title}: {listed(ours)} (ext4: {listed(theirs)})")
    worse = [(case, end, ours.get(case, "absent")) for case, end in sorted(theirs.items())
             if end == "pass" and ours.get(case) != "pass"]
    for case, _, end in worse:
        if end == "skip" and case in CANNOT:
            print(f"  cannot run here: {case} ({CANNOT[case]})")
    worse = [one for one in worse if one[2] != "skip" or one[0] not in CANNOT]
    for case, _, end in worse[:20]:
        print(f"  {end} here alone: {case}")
    if len(worse) > 20:
        print(f"  and {len(worse) - 20} more")
    for case, end in sorted(ours.items()):
        if end == "fail" and theirs.get(case) == "fail":
            print(f"  fails on both: {case}")
    if not any(end == "pass" for end in ours.values()):
        print("  nothing ran")
        return 1
    return 1 if worse else 0


if __name__ == "__main__":
    if sys.argv[1] == "compare":
        sys.exit(compare(*sys.argv[2:5]))
    for case, status in junit(sys.argv[2]) if sys.argv[1] == "junit" else go(*sys.argv[2:4]):
        print(f"{case}\t{status}")
