"""Tables of docs/benchmarks/search.md from the lines that bench/search.sh, bench/search_figures.sh,
bench/search_crash.sh and bench/index.sh print, the paper's numbers beside ours: medians of the runs.

    search_tables.py LINES.json...
"""

import json
import statistics
import sys

SETS = {"1": "1 name, owner", "2": "2 the same below a directory",
        "3": "3 owner, near a time, at least a size", "name": "exact name",
        "substring": "4 to 10 letters of a name"}
# Read off the curves of Fig. 4 (creates a second; all sizes) and taken from the text (5 and 6).
PAPER_CREATES = "1,500 to 2,500"
PAPER_SWEEP = {500: "2,800", 40_000: "about 1,400"}
PAPER_POSTMARK = (1729, 1688)
CLASSES = {"owner-mtime-size": "owner, time near, size at least (set 3)",
           "ranges-2": "ranges of a tenth, 2 attributes", "ranges-3": "3 attributes",
           "ranges-5": "5 attributes", "one-size": "one attribute, a hundredth",
           "name-owner": "name and owner (set 1)", "substring": "five letters of a name",
           "nearest-10": "the ten most alike"}
WAYS = {"cluster": "cluster", "kd-tree": "K-D tree", "kd-tree-grown": "grown", "columns": "columns",
        "sorted": "one-attribute indexes", "brute": "rows one by one"}

lines = []
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        lines += [json.loads(line) for line in file if line.startswith("{")]


def every(bench, **wanted):
    return [line for line in lines if line.get("bench") == bench
            and all(line.get(field) == value for field, value in wanted.items())]


def middle(found, field):
    values = [line[field] for line in found if line.get(field) is not None]
    return statistics.median(values) if values else None


def text(number, digits=None):
    if number is None:
        return "-"
    if digits is None:
        digits = 0 if number >= 100 else 1 if number >= 10 else 2
    return f"{number:,.{digits}f}"


def ms(micros):
    return text(None if micros is None else micros / 1000)


def head(title, *columns):
    print(f"\n{title}\n\n| {' | '.join(columns)} |\n|---|{'---:|' * (len(columns) - 1)}")


def row(*cells):
    print(f"| {' | '.join(str(cell) for cell in cells)} |")


def keys(found, *fields):
    return sorted({tuple(line.get(field) for field in fields) for line in found}, key=str)


def queries():
    ours = [line for line in every("search") if "mode" in line and "cluster_rows" not in line]
    which = ("files", "profile", "mode", "index_budget_bytes", "process_limit")
    for key in keys(ours, *which):
        files, profile, mode, budget, limit = key
        group = [line for line in ours if tuple(line.get(field) for field in which) == key]
        last = group[-1]
        limit = f", {limit} for the whole process" if limit else ""
        peers, three = ({line["set"]: line for line in every("search", peer=peer, files=files, profile=profile)}
                        for peer in ("sqlite", "sqlite, 3 indexes"))
        head(f"{files:,} files, {profile}-like, {mode}, {budget / 1e6:,.0f} MB for the index{limit}: "
             f"ms; {last['clusters']} clusters, {last['index_bytes_per_file']} bytes a file",
             "set", "median", "p99", "longest", "clusters read", "ns a match beyond 1,000",
             "SQLite: median", "p99", "with 3 indexes: median", "p99")
        for name, label in SETS.items():
            of = [line for line in group if line["set"] == name]
            if not of:
                continue
            other = peers.get(name, {})
            row(label, *(ms(middle(of, field)) for field in ("median_us", "p99_us", "max_us")),
                f"{text(100 * middle(of, 'clusters_fraction'), 1)} %",
                text(middle(of, "long_ns_per_match")), ms(other.get("median_us")),
                ms(other.get("p99_us")), ms(three.get(name, {}).get("median_us")),
                ms(three.get(name, {}).get("p99_us")))


def trigrams():
    for line in every("search", peer="sqlite, trigrams"):
        head(f"Parts of names by an index of three letters each in SQLite, {line['files']:,} files: ms",
             "median", "p99", "bytes of table and indexes")
        row(ms(line["median_us"]), ms(line["p99_us"]), text(line["index_bytes"], 0))


def commands():
    found = [line for line in every("search") if "peer" in line and not line["peer"].startswith("sqlite")]
    for (files,) in keys(found, "files"):
        head(f"Whole commands, {files:,} files: ms", "program", "what", "median", "p99", "matches")
        for line in found:
            if line["files"] == files:
                row(line["peer"], SETS.get(line["set"], line["set"]), ms(line["median_us"]),
                    ms(line["p99_us"]), text(line["matches_mean"], 1))


def cluster():
    found = every("cluster-search")
    sizes = [line for line in found if "balance_us" in line]
    if not sizes:
        return
    head("Fig. 3: one cluster. Queries, us at the median; the paper: hundreds of us below 50,000 rows, "
         "more than 10 ms at 200,000; inserts under 10 us; balancing three to four times writing",
         "rows", "owner, time, size", "2 ranges", "5 ranges", "K-D tree, 2 ranges",
         "grown, 2 ranges", "one by one, 2 ranges", "insert into a tree, ns", "order, ms",
         "all of making, ms", "write, ms")
    def one(count, query, way):
        return text(middle(every("cluster-search", rows=count, query=query, way=way), "median_us"))
    for (count,) in sorted(keys(sizes, "rows")):
        of = [line for line in sizes if line["rows"] == count]
        row(f"{count:,}", one(count, "owner-mtime-size", "cluster"), one(count, "ranges-2", "cluster"),
            one(count, "ranges-5", "cluster"), one(count, "ranges-2", "kd-tree"),
            one(count, "ranges-2", "kd-tree-grown"), one(count, "ranges-2", "brute"),
            text(middle(of, "kd_tree_insert_ns")),
            *(ms(middle(of, field)) for field in ("balance_us", "finish_us", "write_us")))
    ways = {line["way"]: None for line in found if "way" in line}
    head("K-D tree, columnar scan and one-attribute indexes by query class: us at the median",
         "query", "rows", *(WAYS.get(way, way) for way in ways))
    for query, label in CLASSES.items():
        for count in (2_000, 20_000, 200_000):
            if every("cluster-search", rows=count, query=query):
                row(label, f"{count:,}", *(one(count, query, way) for way in ways))


def creates():
    fills = [line for line in every("search", set="fill") if "cluster_rows" not in line]
    if fills:
        head(f"Fig. 4: creates a second (the paper: {PAPER_CREATES}, each in the log)", "namespace",
             *(f"{files:,} files" for (files,) in sorted(keys(fills, "files"))))
        for (profile,) in keys(fills, "profile"):
            row(profile, *(text(middle([line for line in fills if (line["profile"], line["files"])
                == (profile, files)], "creates_per_second"), 0)
                for (files,) in sorted(keys(fills, "files"))))
    sweep = [line for line in lines if "cluster_rows" in line]
    if sweep:
        head("Fig. 5: most rows of a cluster", "rows", "creates a second", "the paper", "index, s",
             "set 1 in memory: median, ms", "p99", "cold: median, ms", "p99", "clusters read")
        for (rows,) in sorted(keys(sweep, "cluster_rows")):
            of = [line for line in sweep if line["cluster_rows"] == rows]
            fill = [line for line in of if line["set"] == "fill"]
            warm = [line for line in of if line.get("mode") == "warm"]
            cold = [line for line in of if line.get("mode") == "cold"]
            share = middle(warm, "clusters_fraction")
            row(f"{rows:,}", text(middle(fill, "creates_per_second"), 0), PAPER_SWEEP.get(rows, ""),
                text(middle(fill, "index_seconds")), ms(middle(warm, "median_us")),
                ms(middle(warm, "p99_us")), ms(middle(cold, "median_us")),
                ms(middle(cold, "p99_us")), "-" if share is None else f"{text(100 * share, 1)} %")


def mixes():
    found = every("postmark")
    if found:
        head("Fig. 6 and Table 3: Postmark, 50,000 files in 20,000 directories, 10,000 transactions",
             "", "operations a second", "seconds", "of it making", "transactions", "removing")
        for label, rate in zip(("the paper: Magellan", "the paper: Ceph"), PAPER_POSTMARK):
            row(label, f"{rate:,}", "-", "-", "-", "-")
        for index, label in ((True, "with the index"), (False, "without")):
            of = [line for line in found if line["index"] == index]
            if of:
                row(label, text(middle(of, "operations_per_second"), 0),
                    *(text(middle(of, field)) for field in
                      ("seconds", "create_seconds", "transactions_seconds", "remove_seconds")))
    for line in every("search-clones"):
        head(f"{line['clones']:,} clones of {line['files']:,} files, with a new file each", "", "")
        row("a clone and its change, us", text(line["clone_and_change_us"]))
        row("bytes of the index on disk, a clone", text(line["index_bytes_a_clone"]))
        row("bytes of its memory, a clone", text(line["index_memory_a_clone"]))
        row("first query over all, s", text(line["first_query_seconds"]))
        row("the next, s", text(line["second_query_seconds"]))


def rest():
    for line in every("search-crash"):
        head(f"{line['changes']:,} changes, then a crash: s", "", "caches dropped", "page cache full")
        row("open", line["open_seconds"], line["open_warm_seconds"])
        row("first query", line["first_query_seconds"], line["first_query_warm_seconds"])
        row("second query, `du -s`", line["second_query_seconds"], line["totals_seconds"])
    scans = [line for line in lines if "of_fastest_walker" in line]
    for cache, tree, files in keys(scans, "cache", "tree", "files"):
        head(f"Scans of {tree}, {files:,} names, {cache}", "", "seconds", "names a second",
             "of the fastest walker")
        for line in scans:
            if (line["cache"], line["tree"]) == (cache, tree):
                row(line["who"], text(line["seconds"]), text(line["files_per_second"], 0),
                    text(line["of_fastest_walker"]))


for part in (queries, trigrams, commands, cluster, creates, mixes, rest):
    part()
