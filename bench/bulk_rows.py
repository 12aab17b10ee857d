#!/usr/bin/env python3
"""The rows of bench/bulk.sh, which makes the place and removes it.

    bulk_rows.py PLACE PANDO [--files N] [--names N] [--engine NAME] [--seconds N]
"""
import argparse
import json
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import time

RUNS = 3
CHANGES = 1000
TICK = os.sysconf("SC_CLK_TCK")


def make_tree(top, files):
    random.seed(7)
    noise = random.randbytes(1 << 20)
    for number in range(files):
        directory = f"{top}/{number // 1500}/{number // 15 % 100}"
        if number % 15 == 0:
            os.makedirs(directory, exist_ok=True)
        length = min(int(random.expovariate(1 / 8000)), 65536)
        at = random.randrange(len(noise) - length)
        with open(f"{directory}/file-{number}.c", "wb") as file:
            file.write(noise[at:at + length])


def make_list(path, names):
    """Directories of 1,000 files without contents, as JSON lines."""
    with open(path, "w", encoding="ascii") as lines:
        for directory in range(max(names // 1000, 1)):
            lines.write(f'{{"path":"d{directory}","kind":"d","mode":"0755"}}\n')
            lines.writelines(f'{{"path":"d{directory}/file-{file}","kind":"f","mode":"0644","uid":0,"gid":0,'
                             f'"size":0,"mtime":1700000000}}\n' for file in range(min(names, 1000)))


def spread(times):
    """Least, median and greatest, and how many they are of."""
    times = sorted(times)
    figures = {"least": times[0], "median": statistics.median(times), "most": times[-1]}
    return {**{name: round(seconds, 3) for name, seconds in figures.items()}, "runs": len(times)}


class Bench:
    def __init__(self, args):
        self.args, self.root = args, os.geteuid() == 0
        self.volume = "vol"
        os.chdir(args.place)
        self.run(f"{args.pando} format --engine {args.engine} vol")

    def run(self, command):
        subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL)

    def daemon(self):
        """The daemon's process, if it runs; `status` would start one."""
        try:
            with open("vol/owner.lock", encoding="ascii") as lock:
                pid = int(lock.read())
            with open(f"/proc/{pid}/comm", encoding="ascii") as name:
                return pid if name.read().startswith("pando") else None
        except (OSError, ValueError):
            return None

    def end_daemon(self):
        """Ends the daemon, so that its caches are gone; the next command starts another one."""
        pid = self.daemon()
        if pid is not None:
            os.kill(pid, signal.SIGTERM)
            while self.daemon() == pid:
                time.sleep(0.02)

    def daemon_seconds(self):
        pid = self.daemon()
        if pid is None:
            return 0
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def timed(self, command, after, cold):
        """Seconds, and seconds of processors, of a command; what follows is not counted.

        Cold: without a daemon, and with an empty page cache; the command starts a daemon."""
        if cold:
            self.end_daemon()
        else:
            self.run(f"{self.args.pando} status {self.volume}")
        # Of this file system alone: all of a machine may have much more to write.
        self.run("sync -f .")
        if cold:
            self.run("echo 3 > /proc/sys/vm/drop_caches")
        daemon = self.daemon_seconds()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begun = time.monotonic()
        self.run(command)
        seconds = time.monotonic() - begun
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = usage.ru_utime - before.ru_utime + usage.ru_stime - before.ru_stime
        processor += self.daemon_seconds() - daemon
        print(f"{seconds:8.3f} s{' cold' if cold else ''}: {command}", file=sys.stderr, flush=True)
        self.run(after)
        return seconds, processor

    def report(self, what, **figures):
        line = {"bench": "bulk", "engine": self.args.engine, "files": self.args.files, "what": what}
        print(json.dumps({**line, **figures}), flush=True)

    def compare(self, what, ours, others, cold=False):
        """Runs our command and others' in turns; a row for each of the others, with its bar."""
        if cold and not self.root:
            return
        names = ["pando"] + [name for name, _, _, _ in others]
        commands = [ours] + [(command, after) for _, command, after, _ in others]
        times = {name: [] for name in names}
        begun = time.monotonic()
        for _ in range(RUNS):
            for name, (command, after) in zip(names, commands):
                times[name].append(self.timed(command, after, cold))
            if time.monotonic() - begun > self.args.seconds:
                break
        least = {name: min(seconds for seconds, _ in runs) for name, runs in times.items()}
        for name, _, _, bar in others:
            ratio = least["pando"] / least[name]
            self.report(f"{what} against {name}", cold=cold, ratio=round(ratio, 2), bar=bar, met=ratio <= bar,
                        seconds=spread(seconds for seconds, _ in times["pando"]),
                        other=spread(seconds for seconds, _ in times[name]),
                        processor=spread(used for _, used in times["pando"]),
                        processor_other=spread(used for _, used in times[name]))

    def trees(self):
        make_tree("tree", self.args.files)
        self.run("tar -C tree --format=pax -cf tree.tar .")
        p, vol = f"{self.args.pando} -q", self.volume
        gone, sync = f"{p} rmr --wait {vol}:/t", f"{p} sync {vol}"
        read = ("reading", "tar -C tree -cf - . | cat > /dev/null", "true", 1.2)
        copy = ("cp -a", "cp -a tree copy && sync -f copy", "rm -rf copy", 1.0)
        untar = ("tar x", "mkdir copy && tar -C copy -xf tree.tar && sync -f copy", "rm -rf copy", 1.0)
        tar = ("tar c", "tar -C tree -cf out.tar . && sync -f out.tar", "rm out.tar", 1.0)
        for cold in (False, True):
            self.compare("import DIR", (f"{p} import tree {vol}:/t && {sync}", gone), [read, copy], cold)
            ours = (f"{p} import --format tar tree.tar {vol}:/t && {sync}", gone)
            self.compare("import TAR", ours, [untar], cold)
        self.run(f"{p} import tree {vol}:/t")
        for cold in (False, True):
            ours = (f"{p} export --format tar {vol}:/t own.tar && sync -f own.tar", "rm own.tar")
            self.compare("export TAR", ours, [tar], cold)
            ours = (f"{p} export {vol}:/t own && sync -f own", "rm -rf own")
            self.compare("export DIR", ours, [copy], cold)
        self.run(f"rm -rf tree tree.tar && {gone}")

    def names(self):
        args, p, vol = self.args, f"{self.args.pando} -q", self.volume
        make_list("names.list", args.names)
        times = []
        for number in range(RUNS):
            gone = f"{p} rmr --wait {vol}:/n" if number < RUNS - 1 else "true"
            imports = f"{p} import --format list names.list {vol}:/n && {p} sync {vol}"
            times.append(self.timed(imports, gone, False))
        rate = args.names / min(seconds for seconds, _ in times)
        self.report("import LIST", names=args.names, per_second=round(rate), bar=500_000, met=rate >= 500_000,
                    seconds=spread(seconds for seconds, _ in times), processor=spread(used for _, used in times))
        os.mkdir("mnt")
        self.run(f"{p} mount vol mnt")
        self.volume = "mnt"
        self.run(f"{p} snapshot create mnt/n s0")
        self.run(f"{p} format --engine {args.engine} backup")
        self.run(f"{p} send mnt/n@s0 | {p} receive backup:/n")
        times = []
        for number in range(RUNS):
            for change in range(CHANGES):
                directory, file = change % max(args.names // 1000, 1), (change * 7 + number) % min(args.names, 1000)
                os.chmod(f"mnt/n/d{directory}/file-{file}", 0o600 + number)
            self.run(f"{p} snapshot create mnt/n s{number + 1}")
            stream = f"{p} send --from mnt/n@s{number} mnt/n@s{number + 1} | {p} receive backup:/n"
            times.append(self.timed(stream, "true", False)[0])
        self.report("send and receive", names=args.names, changes=CHANGES, bar=0.2, met=min(times) <= 0.2,
                    seconds=spread(times))
        for form in ("lines", "parquet"):
            times = [self.timed(f"{p} dump --format {form} mnt/n@s0 > dump", "rm dump", False) for _ in range(RUNS)]
            of_ten_million = min(used for _, used in times) * 10_000_000 / args.names
            self.report(f"dump, {form}", names=args.names, seconds=spread(seconds for seconds, _ in times),
                        processor=spread(used for _, used in times),
                        processor_of_ten_million=round(of_ten_million, 1), bar=60, met=of_ten_million <= 60)
        self.run(f"{p} umount mnt")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("place")
    parser.add_argument("pando")
    parser.add_argument("--files", type=int, default=70_000)
    parser.add_argument("--names", type=int, default=1_000_000)
    parser.add_argument("--engine", default="btree")
    parser.add_argument("--seconds", type=float, default=25)
    bench = Bench(parser.parse_args())
    bench.trees()
    bench.names()


if __name__ == "__main__":
    main()
