"""The table of docs/benchmarks/which-engine.md from the lines that bench/which_engine.sh wrote.

which_engine_table.py FILE
"""

import json
import statistics
import sys

RATE, COST = 1, -1
# Title, row, field, and whether more is better.
ROWS = [
    ("creates, 1 thread, 1/s", "create", "ops_per_second", RATE),
    ("creates, 2 threads, 1/s", "create-2", "ops_per_second", RATE),
    ("creates, p99, us", "create", "p99_us", COST),
    ("stats, random order, 1/s", "stat", "ops_per_second", RATE),
    ("creates in order on a full volume, 1/s", "scattered", "sequential_per_second", RATE),
    ("creates scattered over 2,000 directories, 1/s", "scattered", "scattered_per_second", RATE),
    ("scattered to in order", "scattered", "ratio", RATE),
    ("entries listed with attributes, 1/s", "list", "ops_per_second", RATE),
    ("clone of all, us", "clone", "clone_us", COST),
    ("first create in the clone, us", "clone", "first_write_us", COST),
    ("thousandth create in the clone, us", "clone", "thousandth_write_us", COST),
    ("1,000 clones, each with a write, us each", "clones", "clone_us", COST),
    ("look-up with 1,000 clones, times one with none", "clones", "worst_ratio", COST),
    ("look-up in clones before anything is merged, us", "clones", ("cloned", "clones_us"), COST),
    ("look-up in clones when all is merged, us", "clones", ("merged", "clones_us"), COST),
    ("memory for a part: stats, 1/s", "stat-part", "ops_per_second", RATE),
    ("memory for a part: creates in order, 1/s", "scattered-part", "sequential_per_second", RATE),
    ("memory for a part: creates scattered, 1/s", "scattered-part", "scattered_per_second", RATE),
    ("memory for a part: bytes written a create", "scattered-part", "bytes_written_per_file", COST),
    ("bytes written a create", "scattered", "bytes_written_per_file", COST),
    ("bytes on disk after the creates", "create", "bytes_on_disk", COST),
    ("open after a clean close, ms", "open", "open_ms", COST),
    ("first look-up after it, ms", "open", "first_lookup_ms", COST),
    ("resident memory after the creates, bytes", "create", "rss_bytes", COST),
]


def shown(value):
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    print("| | btree | lsm | better by |")
    print("|---|---|---|---|")
    rounds = 0
    for title, row, field, better in ROWS:
        found = {}
        for engine in ("btree", "lsm"):
            values = [line for line in lines if line["row"] == row and line["engine"] == engine]
            for part in (field,) if isinstance(field, str) else field:
                values = [value[part] for value in values]
            if values:
                found[engine] = statistics.median(values)
                rounds = max(rounds, len(values))
        if len(found) < 2:
            continue
        btree, lsm = max(found["btree"], 1e-9), max(found["lsm"], 1e-9)
        ratio = (lsm / btree) ** better
        by = f"lsm {ratio:.2f}" if ratio >= 1 else f"btree {1 / ratio:.2f}"
        print(f"| {title} | {shown(found['btree'])} | {shown(found['lsm'])} | {by} |")
    print(f"\nMedians of {rounds} rounds, engines alternately.")


main()
