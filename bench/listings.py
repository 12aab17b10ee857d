#!/usr/bin/env python3
"""What listings cost through a mount: requests of the kernel a file, and microseconds a file.

    listings.py [--files N] [--rounds N] [--requests] PANDO [OTHER]      as root
Each program runs on a mount that was made just now, with one binary and with the other in turn. With
--requests the daemon's reads are counted by strace, which makes times meaningless: none are printed.
Prints one JSON object a line (docs/benchmarks/listings.md).
"""
import argparse
import collections
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time

OPERATIONS = {1: "LOOKUP", 3: "GETATTR", 17: "STATFS", 22: "GETXATTR", 27: "OPENDIR", 28: "READDIR",
              42: "BATCH_FORGET", 44: "READDIRPLUS"}
STAT_LAST = "import os, sys\nfor n in os.listdir(sys.argv[1]): os.lstat(sys.argv[1] + '/' + n)"


def programs(directory, empty):
    return {"ls -f": ["ls", "-f", directory],
            "ls -l": ["ls", "-l", directory],
            "find -ls": ["find", directory, "-ls"],
            "du -s": ["du", "-s", directory],
            "tar c": ["tar", "cf", "/dev/zero", directory],
            "rsync -an": ["rsync", "-an", directory + "/", empty],
            "readdir, then lstat": ["python3", "-c", STAT_LAST, directory]}


class Volume:
    def __init__(self, top, files):
        self.volume, self.mount, self.empty = (os.path.join(top, n) for n in ("volume", "mnt", "empty"))
        self.directory = os.path.join(self.mount, "files")
        self.files = files
        os.mkdir(self.mount)
        os.mkdir(self.empty)

    def fill(self, pando):
        subprocess.run([pando, "format", self.volume], check=True, stdout=subprocess.DEVNULL)
        self.up(pando)
        os.mkdir(self.directory)
        for n in range(self.files):
            os.close(os.open(f"{self.directory}/file-{n:07}", os.O_CREAT | os.O_WRONLY))
        self.down(pando)

    def up(self, pando):
        """Mounts, and returns the daemon's process."""
        for left in range(100, 0, -1):
            done = subprocess.run([pando, "mount", self.volume, self.mount], capture_output=True, text=True)
            if done.returncode == 0:
                break
            # The daemon of the last mount is still on its way out.
            if left == 1:
                raise SystemExit(done.stderr)
            time.sleep(0.1)
        result = subprocess.run([pando, "status", "--json", self.volume], check=True, capture_output=True, text=True)
        return int(re.search(r'"pid": *(\d+)', result.stdout)[1])

    def down(self, pando):
        subprocess.run([pando, "umount", self.mount], check=True, stdout=subprocess.DEVNULL)


def run(command):
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def counted(pid, command, trace):
    tracer = subprocess.Popen(["strace", "-f", "-qq", "-p", str(pid), "-e", "trace=read", "-xx", "-s", "8", "-o", trace],
                              stderr=subprocess.DEVNULL)
    time.sleep(1)
    run(command)
    time.sleep(0.3)
    tracer.terminate()
    tracer.wait()
    count = collections.Counter()
    with open(trace) as lines:
        for found in (re.search(r'"((?:\\x..){8})"', line) for line in lines):
            if found:
                head = bytes.fromhex(found[1].replace("\\x", ""))
                number = int.from_bytes(head[4:], "little")
                count[OPERATIONS.get(number, f"operation {number}")] += 1
    return count


def daemon(pid):
    """CPU seconds of a process, and memory of its own in KiB."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    with open(f"/proc/{pid}/status") as status:
        memory = next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), memory


def timed(pid, command):
    before, mine, start = daemon(pid), os.times(), time.perf_counter()
    run(command)
    wall, now, after = time.perf_counter() - start, os.times(), daemon(pid)
    spent = now.children_user + now.children_system - mine.children_user - mine.children_system
    return wall, spent, after[0] - before[0], after[1] - before[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", action="store_true")
    parser.add_argument("pando", nargs="+")
    given = parser.parse_args()
    top = tempfile.mkdtemp(prefix="pando-listings.", dir=os.environ.get("TMPDIR", "/var/tmp"))
    volume, last = Volume(top, given.files), given.pando[0]
    try:
        volume.fill(last)
        for name, command in programs(volume.directory, volume.empty).items():
            took = collections.defaultdict(list)
            for turn in range(1 if given.requests else given.rounds):
                for last in given.pando[::-1 if turn % 2 else 1]:
                    pid = volume.up(last)
                    if given.requests:
                        for when in ("new mount", "again"):
                            count = counted(pid, command, os.path.join(top, "trace"))
                            print(json.dumps({"program": name, "pando": last, "when": when, "files": given.files,
                                              "requests_a_file": round(sum(count.values()) / given.files, 4),
                                              "requests": dict(count)}), flush=True)
                    else:
                        took[last].append(timed(pid, command))
                    volume.down(last)
            for last, rounds in took.items():
                wall, spent, served = ([x[n] / given.files * 1e6 for x in rounds] for n in range(3))
                print(json.dumps({"program": name, "pando": last, "files": given.files, "rounds": len(rounds),
                                  "wall_us": [round(x, 2) for x in wall],
                                  "program_cpu_us": round(statistics.median(spent), 2),
                                  "daemon_cpu_us": round(statistics.median(served), 2),
                                  "daemon_grew_kib": max(x[3] for x in rounds)}), flush=True)
    finally:
        subprocess.run([last, "umount", volume.mount], capture_output=True)
        if not os.path.ismount(volume.mount):
            shutil.rmtree(top, ignore_errors=True)


main()
