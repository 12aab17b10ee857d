"""The tables of docs/benchmarks/babudb.md from the lines that bench/babudb.sh wrote.

babudb_tables.py FILE
"""

import json
import statistics
import sys

# Table I of the paper: mean, deviation and 99th percentile in milliseconds, size in MB.
PAPER = {
    (100000, "normal"): (0.1908, 1.9145, 0.1974, 16),
    (1000000, "normal"): (0.1934, 3.2928, 0.2047, 155),
    (100000, "checkpoint"): (0.3166, 4.6740, 0.2563, 16),
    (1000000, "checkpoint"): (0.4155, 15.4259, 0.2251, 155),
}


def table_one(lines):
    print("Table I. Microseconds of a create\n")
    print("| | files | mean | deviation | p99 | p99.9 | longest | meter, p99.9 | meter, longest | index |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for (files, state), (mean, deviation, p99, size) in sorted(PAPER.items()):
        print(f"| paper, {state} | {files:,} | {mean * 1e3:,.0f} | {deviation * 1e3:,.0f} "
              f"| {p99 * 1e3:,.0f} | - | - | - | - | {size} MB |")
    for line in lines:
        for state in ("normal", "checkpoint", "snapshot"):
            at = line[state]
            print(f"| {line['engine']}, {state} | {line['files']:,} | {at['mean_us']:.2f} | {at['stdev_us']:.1f} "
                  f"| {at['p99_us']:.1f} | {at['p999_us']:.1f} | {at['max_us']:,.0f} | {at['meter_p999_us']:,.0f} "
                  f"| {at['meter_max_us']:,.0f} | {line['index_bytes'] / 1e6:.1f} MB |")
    print()
    for line in lines:
        kept = "holds" if line["p99_within_bound"] else "**missed**"
        print(f"* {line['engine']}, {line['files']:,} files: p99 beside within max(1.3 times, + 100 us) = "
              f"{line['p99_bound_us']:.0f} us of normal: {kept}; {line['index_bytes_per_file']:.1f} bytes a file "
              f"(the paper: 155); checkpoint {line['checkpoint_seconds']:.2f} s, snapshot "
              f"{line['snapshot_seconds']:.2f} s.")
    print()


def figure_four(lines):
    subjects = list(dict.fromkeys(line["subject"] for line in lines))
    sizes = sorted({line["files"] for line in lines if line["phase"] == "create"})
    for title, phase, caches in (
        ("Fig. 4, left. Seconds to create so many files in one directory", "create", "warm"),
        ("Fig. 4, right. Seconds to list them with attributes, warm", "list", "warm"),
        ("Fig. 4, right. The same with caches dropped", "list", "dropped"),
    ):
        print(title + "\n")
        print("| files | " + " | ".join(subjects) + " |")
        print("|---" * (len(subjects) + 1) + "|")
        for files in sizes:
            cells = []
            for subject in subjects:
                found = [line["seconds"] for line in lines if (line["subject"], line["files"], line["phase"],
                         line.get("caches")) == (subject, files, phase, caches)]
                cells.append(f"{statistics.median(found):.3f}" if found else "-")
            print(f"| {files:,} | " + " | ".join(cells) + " |")
        print()
    print("Bytes of disk a file, with all that the file system needs for it\n")
    print("| files | " + " | ".join(subjects) + " |")
    print("|---" * (len(subjects) + 1) + "|")
    for files in sizes:
        cells = []
        for subject in subjects:
            used = lambda count: [line["bytes"] for line in lines if line["phase"] == "disk"
                                  and (line["subject"], line["files"]) == (subject, count)]
            full, empty = used(files), used(0)
            bytes_each = (statistics.median(full) - statistics.median(empty)) / files if full and empty else None
            cells.append("-" if bytes_each is None else f"{bytes_each:.0f}")
        print(f"| {files:,} | " + " | ".join(cells) + " |")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    table_one([line for line in lines if line.get("workload") == "create-latency"])
    figure_four([line for line in lines if "subject" in line])


main()
