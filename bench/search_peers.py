#!/usr/bin/env python3
"""What other programs take for the queries of `pando-bench search`.

search_peers.py sqlite LIST DIR: a table with indexes on owner, time and size, then one on each attribute, then,
with FTS=1, one of three letters each for parts of names; warm.
search_peers.py tree LIST DIR: a real tree of (sparse) files, searched by find, fd, bfs and plocate,
as far as they are installed; owners are set when root runs it.

search_peers.py commands LIST DIR VOLUME: whole commands for exact names and parts of names, alternately: plocate on
a database of the same paths, and `pando find` on VOLUME, which `pando-bench search` filled; then totals and counts.

LIST is what `pando-bench search --list` wrote, LIST.sample.json what queries are drawn from. Prints
a JSON object a line. Times of programs contain their start, of about a millisecond.
"""

import json
import math
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from datetime import datetime, timezone

HOUR = 3600 * 10**9
MATCHES_MAX = 1000
NEAR = [HOUR, 24 * HOUR, 168 * HOUR]
SETS = ["1", "2", "3", "name", "substring"]


def draw(kind, rows, rng):
    """A query as a dictionary; the same rules as ours."""
    row = rng.choice(rows)
    query = {"name": row["name"], "uid": row["uid"], "directory": ""}
    if kind == "2":
        depth = rng.randint(1, max(1, len(row["directories"])))
        query["directory"] = "/".join(row["directories"][:depth])
    elif kind == "3":
        near = rng.choice(NEAR)
        query["from"], query["to"] = row["mtime"] - near, row["mtime"] + near
        query["size"] = row["size"]
    elif kind == "substring":
        length = min(rng.randint(4, 10), len(row["name"]))
        at = rng.randint(0, len(row["name"]) - length)
        query["part"] = row["name"][at : at + length]
        # All its threes of letters, which is what an index without places can determine.
        threes = [query["part"][i : i + 3] for i in range(max(1, length - 2))]
        query["match"] = " AND ".join('"' + three.replace('"', '""') + '"' for three in threes)
    return query


def report(peer, kind, sample, times, matches, most=None, **more):
    """Prints a line; where `most` is given, of answers with more matches only the time a match counts,
    as `pando-bench search` has it."""
    if most is not None:
        long = [(time, count) for time, count in zip(times, matches) if count > most]
        if long:
            more["long_queries"] = len(long)
            more["long_ns_per_match"] = sum(time for time, _ in long) // sum(n for _, n in long)
        times = [time for time, count in zip(times, matches) if count <= most] or times
    times = sorted(times)
    # The same element as ours.
    at = lambda share: round(times[max(0, math.ceil(len(times) * share) - 1)] / 1000, 1)
    more.update(
        bench="search", peer=peer, set=kind, files=sample["files"], profile=sample["profile"],
        queries=len(matches), median_us=at(0.5), p99_us=at(0.99), max_us=at(1.0),
        matches_mean=round(sum(matches) / len(matches), 1),
    )
    print(json.dumps(more), flush=True)


def sqlite(listing, scratch, sample):
    path = os.path.join(scratch, "peers.sqlite")
    start = time.monotonic()
    db = sqlite3.connect(path)
    db.executescript("pragma journal_mode=off; pragma synchronous=off; pragma cache_size=-4000000;")
    db.execute("create table files (directory text, name text, uid int, mtime int, size int)")
    with open(listing, encoding="utf-8") as lines:
        rows = (line.rstrip("\n").split("\t") for line in lines)
        db.executemany("insert into files values (?, ?, ?, ?, ?)", rows)
    # Three indexes first, then one on each attribute.
    for column in ("uid", "mtime", "size"):
        db.execute(f"create index by_{column} on files ({column})")
    db.execute("analyze")
    db.commit()
    build = time.monotonic() - start
    ask_sqlite(db, path, "sqlite, 3 indexes", ["1", "2", "3"], sample, build)
    start = time.monotonic()
    for column in ("directory", "name"):
        db.execute(f"create index by_{column} on files ({column})")
    db.execute("analyze")
    db.commit()
    build += time.monotonic() - start
    ask_sqlite(db, path, "sqlite", SETS, sample, build)
    if os.environ.get("FTS"):
        start = time.monotonic()
        db.execute("create virtual table parts using fts5(name, content='', columnsize=0, detail=none,"
                   " tokenize='trigram case_sensitive 1')")
        db.execute("insert into parts(rowid, name) select rowid, name from files")
        db.commit()
        build += time.monotonic() - start
        ask_sqlite(db, path, "sqlite, trigrams", ["substring"], sample, build)
    db.close()
    os.remove(path)


def ask_sqlite(db, path, peer, sets, sample, build):
    named = "select directory, name from files where name = :name"
    texts = {
        "1": named + " and uid = :uid",
        "2": named + " and uid = :uid and (directory = :directory or"
        " (directory > :directory || '/' and directory < :directory || '0'))",
        "3": "select directory, name from files where uid = :uid and mtime between :from and :to"
        " and size >= :size",
        "name": named,
        "substring": "select directory, name from files where instr(name, :part) > 0",
    }
    if "trigrams" in peer:
        texts["substring"] = ("select directory, name from files where rowid in"
                              " (select rowid from parts where parts match :match) and instr(name, :part) > 0")
    for kind in sets:
        rng = random.Random(11)
        count = 20 if kind == "substring" else 200
        queries = [draw(kind, sample["rows"], rng) for _ in range(count)]
        for measured in (False, True):
            times, matches = [], []
            for query in queries:
                start = time.monotonic_ns()
                found = db.execute(texts[kind], query).fetchall()
                times.append(time.monotonic_ns() - start)
                matches.append(len(found))
        size = os.path.getsize(path)
        report(peer, kind, sample, times, matches, MATCHES_MAX, index_bytes=size,
               build_seconds=round(build, 1))


def make_tree(listing, root):
    made, owned = set(), os.geteuid() == 0
    with open(listing, encoding="utf-8") as lines:
        for line in lines:
            directory, name, uid, mtime, size = line.rstrip("\n").split("\t")
            place = os.path.join(root, directory)
            if directory not in made:
                os.makedirs(place, exist_ok=True)
                made.add(directory)
            path = os.path.join(place, name)
            file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
            # Longer than the file system allows is cut: few files are.
            os.ftruncate(file, min(int(size), 1 << 43))
            if owned:
                os.fchown(file, int(uid), -1)
            os.utime(file, ns=(int(mtime), int(mtime)))
            os.close(file)


def moment(nanos):
    whole = datetime.fromtimestamp(nanos // 10**9, timezone.utc)
    return whole.strftime("%Y-%m-%dT%H:%M:%SZ")


def find_like(program):
    def command(kind, query, root):
        args = [program, os.path.join(root, query["directory"]), "-type", "f"]
        if kind == "3":
            args += ["-newermt", moment(query["from"]), "!", "-newermt", moment(query["to"])]
            return args + ["-uid", str(query["uid"]), "-size", f"+{max(0, query['size'] - 1)}c"]
        if kind == "substring":
            return args + ["-name", f"*{query['part']}*"]
        args += ["-name", query["name"]]
        return args if kind == "name" else args + ["-uid", str(query["uid"])]

    return command


def fd_like(program):
    def command(kind, query, root):
        args = [program, "-HI", "--type", "f"]
        place = ["--base-directory", os.path.join(root, query["directory"])]
        if kind == "3":
            within = ["--changed-after", moment(query["from"])]
            within += ["--changed-before", moment(query["to"])]
            args += within + ["--owner", str(query["uid"]), "--size", f"+{query['size']}b"]
            return args + place
        if kind == "substring":
            return args + ["--fixed-strings", query["part"]] + place
        args += ["--glob", query["name"]] + place
        return args if kind == "name" else args + ["--owner", str(query["uid"])]

    return command


def plocate(database):
    def command(kind, query, root):
        if kind == "name":
            return ["plocate", "-d", database, "-b", "--", "\\" + query["name"]]
        if kind == "substring":
            return ["plocate", "-d", database, "-b", "--", query["part"]]
        return None

    return command


def commands(listing, scratch, sample, volume):
    """plocate and `pando find` alternately, on the same names; the first round is not counted."""
    paths, database = os.path.join(scratch, "paths"), os.path.join(scratch, "plocate.db")
    start = time.monotonic()
    with open(listing, encoding="utf-8") as lines, open(paths, "w", encoding="utf-8") as out:
        for line in lines:
            directory, name = line.split("\t", 2)[:2]
            out.write(f"/{directory}/{name}\n" if directory else f"/{name}\n")
    subprocess.run(["plocate-build", "-p", "-l", "no", paths, database], check=True)
    build = round(time.monotonic() - start, 1)
    os.remove(paths)
    ours = os.path.join("target", "release", "pando")

    def find(kind, query, _):
        by = ["-name", query["name"]] if kind == "name" else ["-contains", query["part"]]
        return [ours, "find", volume + ":/"] + by

    peers = {"plocate": plocate(database), "pando find": find}
    for kind in ("name", "substring"):
        rng = random.Random(11)
        queries = [draw(kind, sample["rows"], rng) for _ in range(100)]
        times, matches = {peer: [] for peer in peers}, {peer: [] for peer in peers}
        for measured in (False, True):
            for query in queries:
                for peer, command in peers.items():
                    start = time.monotonic_ns()
                    done = subprocess.run(command(kind, query, ""), stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, check=False)
                    took = time.monotonic_ns() - start
                    # plocate ends with 1 where nothing is found.
                    if done.stderr:
                        sys.exit(f"{peer}, set {kind}: {done.stderr.decode()}")
                    if measured:
                        times[peer].append(took)
                        matches[peer].append(done.stdout.count(b"\n"))
        for peer in peers:
            more = {"index_bytes": os.path.getsize(database), "build_seconds": build}
            report(peer, kind, sample, times[peer], matches[peer],
                   **(more if peer == "plocate" else {}))
    os.remove(database)
    # Totals and counts, as whole commands too.
    root = volume + ":/"
    verbs = {"summary --json": ["summary", "--json", root], "du -s": ["du", "-s", root],
             "du -d 1": ["du", "-d", "1", root], "find -count": ["find", root, "-count"],
             "find -type f -count": ["find", root, "-type", "f", "-count"],
             "find -user -count": ["find", root, "-uid", sample["rows"][0]["uid"], "-count"]}
    for name, words in verbs.items():
        times = []
        for measured in (False,) + (True,) * 20:
            start = time.monotonic_ns()
            subprocess.run([ours] + [str(word) for word in words], stdout=subprocess.DEVNULL,
                           check=True)
            if measured:
                times.append(time.monotonic_ns() - start)
        report("pando", name, sample, times, [0])


def tree(listing, scratch, sample):
    root = os.path.join(scratch, "tree")
    make_tree(listing, root)
    peers = {"find": find_like("find")}
    if shutil.which("bfs"):
        peers["bfs"] = find_like("bfs")
    for program in ("fd", "fdfind"):
        if shutil.which(program):
            peers["fd"] = fd_like(program)
    if shutil.which("plocate"):
        database = os.path.join(scratch, "plocate.db")
        update = ["updatedb.plocate", "-U", root, "-o", database, "-l", "no"]
        subprocess.run(update + ["--prunepaths", "", "--prunefs", ""], check=True)
        peers["plocate"] = plocate(database)
    for peer, command in peers.items():
        for kind in SETS:
            rng = random.Random(11)
            count = 100 if peer == "plocate" else 5
            times, matches = [], []
            for query in [draw(kind, sample["rows"], rng) for _ in range(count)]:
                args = command(kind, query, root)
                if args is None:
                    break
                start = time.monotonic_ns()
                done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
                times.append(time.monotonic_ns() - start)
                if done.returncode and done.stderr:
                    print(f"{peer}, set {kind}: {done.stderr.decode()}", file=sys.stderr)
                    times = []
                    break
                matches.append(done.stdout.count(b"\n"))
            if times:
                report(peer, kind, sample, times, matches)
    shutil.rmtree(root)


def main():
    what, listing, scratch, *more = sys.argv[1:]
    with open(listing + ".sample.json", encoding="utf-8") as file:
        sample = json.load(file)
    what_to_do = {"sqlite": sqlite, "tree": tree, "commands": commands}[what]
    what_to_do(listing, scratch, sample, *more)


main()
