"""Tables of docs/benchmarks/rodeh.md from the lines that bench/rodeh.sh collects: medians, in the
shape of the paper's tables, the paper's numbers beside ours."""

import json
import statistics
import sys

PAPER_II = {75: (570, 4394, 4868), 50: (464, 2271, 2434), 25: (321, 1508, 1622),
            10: (258, 1254, 1352), 5: (254, 1227, 1281), 2: (250, 1145, 1241)}
MIXES = ("search100", "search80", "modify", "insert")
NAMES = "Src-100 | Src-80 | Modify | Insert"
PAPER = {"ten": (1227, 748, 455, 400), "one": (272, 144, 75, 62), "ideal": (1281, None, None, 429),
         "checkpoint": (1217, 734, 430, 379), "clones": (1211, 709, 423, 367),
         "two in memory": (20395, 18524, 16907, 16505), "one in memory": (13910, 12670, 11452, 11112)}

OPS, IDEAL, RATIO = "ops_per_second", "ideal_ops_per_second", "ratio"
lines = [json.loads(line) for line in open(sys.argv[1]) if line.strip()]


def value(field, workload, percent, threads, mix=None):
    found = [line[field] for line in lines
             if line["workload"] == workload and line["in_memory_percent"] == percent
             and line["threads"] == threads and mix in (None, line["mix"]) and field in line]
    return statistics.median(found) if found else None


def spread(of, workload, percent, threads):
    """The lowest or highest rate of all runs."""
    return of((line[OPS] for line in lines
               if (line["workload"], line["in_memory_percent"], line["threads"])
               == (workload, percent, threads)), default=None)


def text(number, digits=0):
    return "-" if number is None else f"{number:,.{digits}f}"


def row(title, numbers, digits=0):
    print(f"| {title} | {' | '.join(text(number, digits) for number in numbers)} |")


def head(title, columns):
    print(f"\n{title}\n\n| | {columns} |\n|---{'|---' * (columns.count('|') + 1)}|")


def four(field, workload, percent, threads):
    if workload == "rodeh-":
        return [value(field, workload + mix, percent, threads) for mix in MIXES]
    return [value(field, workload, percent, threads, mix) for mix in MIXES]


one = lines[0]
print(f"{one['entries']:,} keys, {one['leaves']:,} leaves, {one['interiors']:,} index nodes, "
      f"{one['tree_bytes'] / 2**20:,.0f} MiB on disk, {one['tree_memory_bytes'] / 2**20:,.0f} MiB "
      f"in memory; {len(lines)} runs.")

head("Table II. Look-ups a second",
     "paper, 1 thread | 10 threads | ideal | 10 to ideal | ours, 1 thread | ideal 1 | ratio "
     "| ours, 10 threads | ideal 10 | ratio | reads an op")
for percent, (single, ten, ideal) in PAPER_II.items():
    ours = [value(f, "rodeh-search100", percent, t)
            for t in (1, 10) for f in (OPS, IDEAL, RATIO)]
    reads = value("reads_per_op", "rodeh-search100", percent, 10)
    cells = [text(single), text(ten), text(ideal), text(ten / ideal, 2)]
    cells += [text(number, 2 if at % 3 == 2 else 0) for at, number in enumerate(ours)]
    print(f"| {percent} % | {' | '.join(cells)} | {text(reads, 2)} |")

head("Table III. Look-ups a second, all in memory (ideal: ordered maps)", "1 thread | 2 threads")
row("paper", (14297, 20198))
for name, field, digits in (("ours", OPS, 0), ("ideal", IDEAL, 0), ("ratio", RATIO, 2)):
    row(name, [value(field, "rodeh-search100", 100, t) for t in (1, 2)], digits)

head("Table IV. Microseconds an operation, 5 % in memory, 1 thread",
     "lookup | insert | remove | append")
row("paper", (3415, 16800, 16600, 6))


def per_miss(field, workload):
    """Microseconds of an operation of which 95 in 100 miss, by what the disk did."""
    rate = value(field, workload, 5, 1)
    return 0.95e6 / rate if rate else None


# What is appended to is in memory, and the ideal takes no time for it.
ideal_iv = (per_miss("raw_reads_per_second", "rodeh-search100"),
            per_miss("raw_read_writes_per_second", "rodeh-insert"),
            per_miss("raw_read_writes_per_second", "rodeh-remove"))
ours_iv = (value("lookup_us", "rodeh-search100", 5, 1), value("insert_us", "rodeh-insert", 5, 1),
           value("remove_us", "rodeh-remove", 5, 1))
row("ours", (*ours_iv, value("insert_us", "rodeh-append", 5, 1)), 1)
row("ideal", (*ideal_iv, None), 1)
row("ideal to ours", [*(x / y if x and y else None for x, y in zip(ideal_iv, ours_iv)), None], 2)

head("Table V. What a mix is made of, of 100 operations (the paper's and ours)", NAMES)
for what, parts in (("look-ups", (100, 80, 20, 0)), ("insertions", (0, 10, 40, 100)),
                    ("removals", (0, 10, 40, 0))):
    row(what, parts)

head("Table VI. Operations a second, 5 % in memory", NAMES)
row("paper, 10 threads", PAPER["ten"])
row("paper, 1 thread", PAPER["one"])
row("paper, ideal", PAPER["ideal"])
for threads in (10, 1):
    for name, field, digits in (("ours", OPS, 0), ("ideal", IDEAL, 0), ("ratio", RATIO, 2)):
        row(f"{name}, {threads} thread{'s' * (threads > 1)}", four(field, "rodeh-", 5, threads),
            digits)
    row(f"ours with a checkpoint at the end, {threads} thread{'s' * (threads > 1)}",
        four("settled_ops_per_second", "rodeh-", 5, threads))
    row("its ratio", four("settled_ratio", "rodeh-", 5, threads), 2)
    for name, of in (("lowest", min), ("highest", max)):
        row(f"{name} of the runs", [spread(of, "rodeh-" + mix, 5, threads) for mix in MIXES])
row("reads an operation, 10 threads", four("reads_per_op", "rodeh-", 5, 10), 2)
row("bytes written an operation, 10 threads", four("written_bytes_per_op", "rodeh-", 5, 10))

for number, title, workload, paper in (
        ("VII", "with a checkpoint", "rodeh-checkpoint", "checkpoint"),
        ("VIII", "on two clones", "rodeh-clones2", "clones")):
    head(f"Table {number}. Operations a second {title}, 10 threads, 5 % in memory", NAMES)
    row(f"paper, {paper}", PAPER[paper])
    row("paper, base", PAPER["ten"])
    row("paper, ratio", [x / y for x, y in zip(PAPER[paper], PAPER["ten"])], 2)
    row(f"ours, {paper}", four(OPS, workload, 5, 10))
    row("ours, base in the same run", four("base_ops_per_second", workload, 5, 10))
    row("ours, ratio", four("ratio_to_base", workload, 5, 10), 2)
    row("ratio to ideal", four(RATIO, workload, 5, 10), 2)

head("Table IX. Operations a second on two clones, all in memory", NAMES)
row("paper, 2 threads", PAPER["two in memory"])
row("paper, 1 thread", PAPER["one in memory"])
row("paper, 2 to 1", [x / y for x, y in
                      zip(PAPER["two in memory"], PAPER["one in memory"])], 2)
two, single = (four(OPS, "rodeh-clones2", 100, t) for t in (2, 1))
row("ours, 2 threads", two)
row("ours, 1 thread", single)
row("ours, 2 to 1", [x / y if x and y else None for x, y in zip(two, single)], 2)
row("ratio to ordered maps, 2 threads", four(RATIO, "rodeh-clones2", 100, 2), 2)
row("ratio to ordered maps, 1 thread", four(RATIO, "rodeh-clones2", 100, 1), 2)

head("Table X. Operations a second on 256 clones, runs of 100 keys, 5 % in memory",
     "10 threads | 1 thread")
row("paper, Src-80'", (22198, 5008))
for name, field, digits in (("ours, Src-80'", OPS, 0), ("ideal", IDEAL, 0), ("ratio", RATIO, 2)):
    row(name, [value(field, "rodeh-clones256", 5, t) for t in (10, 1)], digits)
