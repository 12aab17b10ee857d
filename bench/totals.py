#!/usr/bin/env python3
"""Totals of a mounted volume as root and as an ordinary user, for bench/totals.sh. As root.

    totals.py MOUNT ENGINE LABEL    (PANDO names the program)

Reads user.pando.rbytes of the root 50 times and of 500 random directories, each once unmeasured
before, and runs `pando du -s`, `pando du -d 1`, `pando summary` and counts by `pando find` of the root
ten times as whole commands. Prints one JSON object for each caller and request; `value` is what
the root reaches.
"""
import json
import os
import random
import subprocess
import sys
import time

ATTRIBUTE = "user.pando.rbytes"
NOBODY = 65534


def measured(calls):
    times = []
    for call in calls:
        begun = time.perf_counter()
        call()
        times.append((time.perf_counter() - begun) * 1000)
    times.sort()
    at = lambda share: round(times[min(len(times) - 1, int(len(times) * share))], 3)
    return {"calls": len(times), "median_ms": at(0.5), "p99_ms": at(0.99), "max_ms": round(times[-1], 3)}


def ask(engine, label, who, directories):
    if who == "nobody":
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    pando = os.environ["PANDO"]
    begun = time.perf_counter()
    value = int(os.getxattr(".", ATTRIBUTE))
    first = round((time.perf_counter() - begun) * 1000, 3)
    some = []
    for directory in directories:
        try:
            os.getxattr(directory, ATTRIBUTE)
            some.append(directory)
        except PermissionError:
            pass
    du = [pando, "du", "-s", "-b", "."]
    counted = int(subprocess.run(du, check=True, capture_output=True).stdout.split(b"\t")[0])
    if counted != value:
        sys.exit(f"{who}: du prints {counted}, the attribute {value}")
    run = lambda *words: subprocess.run([pando, *words, "."], check=True, capture_output=True)
    find = lambda *words: subprocess.run([pando, "find", ".", *words], check=True, capture_output=True)
    asked = {
        "attribute of the root": [lambda: os.getxattr(".", ATTRIBUTE)] * 50,
        "attribute of directories": [lambda at=at: os.getxattr(at, ATTRIBUTE) for at in some],
        "du -s of the root": [lambda: run("du", "-s")] * 10,
        "du -d 1 of the root": [lambda: run("du", "-d", "1")] * 10,
        "summary of the root": [lambda: run("summary", "--json")] * 10,
        "count of the root": [lambda: find("-count")] * 10,
        "count of files": [lambda: find("-type", "f", "-count")] * 10,
        "count of an owner's": [lambda: find("-uid", "1003", "-count")] * 10,
        "count by all of some bits": [lambda: find("-perm", "-600", "-count")] * 10,
        "count by some of some bits": [lambda: find("-perm", "/022", "-count")] * 10,
        "count by the end of a name": [lambda: find("-name", "*.c", "-count")] * 10,
        "count by any case": [lambda: find("-iname", "*data*", "-count")] * 10,
        "count of others": [lambda: find("!", "(", "-perm", "644", "-o", "-name", "*.h5", ")", "-count")] * 10,
        "count by last access": [lambda: find("-atime", "+1", "-count")] * 10,
    }
    for what, calls in asked.items():
        head = {"bench": "totals", "engine": engine, "when": label, "who": who, "what": what, "value": value}
        if what == "attribute of the root":
            head["first_ms"] = first
        print(json.dumps({**head, **measured(calls)}), flush=True)


def main():
    mount, engine, label = sys.argv[1:]
    os.chdir(mount)
    found = [os.environ["PANDO"], "find", ".", "-type", "d", "-print0"]
    all_of_them = subprocess.run(found, check=True, capture_output=True).stdout.split(b"\0")[:-1]
    directories = random.Random(1).sample(all_of_them, min(500, len(all_of_them)))
    for who in ["root", "nobody"]:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            ask(engine, label, who, directories)
            sys.stdout.flush()
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            sys.exit(f"as {who}: failed")


main()
