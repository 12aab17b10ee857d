#!/usr/bin/env python3
"""Random changes of a mounted volume, for bench/search_crash.sh and bench/totals.sh. As root.

    search_changes.py MOUNT COUNT SEED < paths

Of the paths on standard input (relative to MOUNT, each ended by a zero byte) each of the first
COUNT is what a change is made of, or beside: written to, given another mode, owner, name,
directory, link or attribute, removed, or given a neighbour. After each 2,000 (VERSIONS_EVERY; 0:
never) a snapshot or a clone is made of a directory, or one is rolled back, or a clone removed, with
the program that PANDO names. Prints how many of each were made, as one JSON object; what the kernel refuses (a
name that is gone with its directory, a link from one subvolume to another) is counted as well.
"""
import collections
import json
import os
import random
import subprocess
import sys

VERSIONS_EVERY = int(os.environ.get("VERSIONS_EVERY", 2000))


class Changes:
    def __init__(self, mount, seed):
        os.chdir(mount)
        self.random = random.Random(seed)
        self.seed, self.number = seed, 0
        self.made, self.snapshots, self.clones = [], [], []
        self.counts = collections.Counter()

    def new(self, directory):
        self.number += 1
        return os.path.join(directory, b"new-%d-%d.txt" % (self.seed, self.number))

    def pando(self, *words):
        done = subprocess.run([os.environ["PANDO"], *words], capture_output=True)
        if done.returncode != 0:
            raise OSError(done.stderr.decode(errors="replace"))

    def mode(self, path):
        os.chmod(path, self.random.choice([0o604, 0o640, 0o755, 0o4711]))

    def owner(self, path):
        os.chown(path, self.random.randrange(1000, 1020), self.random.randrange(1000, 1010))

    def size(self, path):
        os.truncate(path, self.random.randrange(1 << 20))

    def write(self, path):
        with open(path, "ab") as file:
            file.write(b"x" * self.random.randrange(1, 3000))

    def times(self, path):
        seconds = self.random.randrange(1_500_000_000, 1_700_000_000)
        os.utime(path, (seconds, seconds))

    def rename(self, path):
        os.rename(path, self.new(os.path.dirname(path)))

    def move(self, path):
        os.rename(path, self.new(self.elsewhere))

    def link(self, path):
        os.link(path, self.new(self.elsewhere))

    def remove(self, path):
        os.unlink(path)

    def create(self, path):
        os.close(os.open(self.new(os.path.dirname(path)), os.O_CREAT | os.O_EXCL | os.O_WRONLY))

    def symlink(self, path):
        os.symlink(b"nowhere", self.new(os.path.dirname(path)))

    def attribute(self, path):
        os.setxattr(path, "user.color", self.random.choice([b"red", b"blue"]))

    def directory(self, path):
        made = self.new(os.path.dirname(path))
        os.mkdir(made)
        self.made.append(made)

    def remove_directory(self, _path):
        os.rmdir(self.made.pop())

    def move_directory(self, path):
        at = self.random.randrange(len(self.made))
        new = self.new(os.path.dirname(path))
        os.rename(self.made[at], new)
        self.made[at] = new

    def snapshot(self, path):
        name = b"s%d-%d" % (self.seed, self.number)
        directory = os.path.dirname(path) or b"."
        self.pando("snapshot", "create", directory, name)
        self.snapshots.append((directory, name))

    def roll_back(self, _path):
        self.pando("rollback", *self.snapshots.pop(0))

    def clone(self, path):
        clone = self.new(os.path.dirname(path))
        self.pando("clone", self.elsewhere or b".", clone)
        self.clones.append(clone)

    def remove_clone(self, _path):
        self.pando("rmr", self.clones.pop(0))

    CHANGES = [
        (mode, 15), (owner, 10), (size, 10), (write, 10), (times, 5), (rename, 15), (move, 5),
        (link, 5), (remove, 10), (create, 10), (symlink, 1), (attribute, 3), (directory, 3),
        (remove_directory, 1), (move_directory, 1),
    ]
    VERSIONS = [(snapshot, 2), (roll_back, 1), (clone, 2), (remove_clone, 1)]

    def one(self, kinds, path):
        change = self.random.choices([kind for kind, _ in kinds], [share for _, share in kinds])[0]
        try:
            change(self, path)
            self.counts[change.__name__] += 1
        except (OSError, IndexError, ValueError):
            self.counts["refused"] += 1

    def run(self, paths):
        self.elsewhere = b""
        for at, path in enumerate(paths):
            self.one(self.CHANGES, path)
            if VERSIONS_EVERY and at % VERSIONS_EVERY == VERSIONS_EVERY - 1:
                self.one(self.VERSIONS, path)
            self.elsewhere = os.path.dirname(path)


def main():
    mount, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    paths = sys.stdin.buffer.read().split(b"\0")
    changes = Changes(mount, seed)
    changes.run([path for path in paths if path][:count])
    print(json.dumps(changes.counts, sort_keys=True))


main()
