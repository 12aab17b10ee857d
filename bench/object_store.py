#!/usr/bin/env python3
"""A volume in an object store whose requests take long, beside a local volume of the same engine.

    bench/object_store.py PANDO DIRECTORY [--files N] [--delay MS] [--juicefs PROGRAM]

The store is `bench/slow_s3.py`: it answers each request after a delay (30 ms), like one in the same
region. All file systems are mounted by the same program, and each step that changes something ends
when what it changed is durable: for PandoFS when `pando sync` has returned, for JuiceFS when close
has returned, or with `--writeback` when nothing is left to be uploaded. The table has a line for a
step, in seconds, and the requests that the server counted. Caches are warm except in the steps that
are called cold: there the volume was unmounted and the host's directory deleted.
"""

import argparse
import glob
import io
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import time
import urllib.request

HERE = os.path.dirname(os.path.realpath(__file__))
BUCKET = "bucket"


def archive(path, files):
    """A tree like one of sources: 20 files a directory, most of some KiB."""
    numbers = random.Random(1)
    with tarfile.open(path, "w") as tar:
        for number in range(files):
            size = int(min(numbers.lognormvariate(8.2, 1.2), 1 << 20))
            entry = tarfile.TarInfo(f"tree/d{number // 400}/d{number // 20}/f{number}.c")
            entry.size, entry.mtime = size, 1_700_000_000
            tar.addfile(entry, io.BytesIO(numbers.randbytes(size)))


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def repository(place, tar):
    """A bare repository that has the tree."""
    source, bare = f"{place}/work", f"{place}/bare.git"
    os.makedirs(source)
    run("tar", "-xf", tar, "-C", source)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "core.compression=0"]
    run(*git, "init", "-q", source)
    run(*git, "-C", source, "add", "-A")
    run(*git, "-C", source, "commit", "-q", "-m", "tree")
    run(*git, "-c", "pack.threads=1", "clone", "-q", "--bare", "--no-local", source, bare)
    shutil.rmtree(source)
    return bare


class Pando:
    """A volume of PandoFS. Its steps end when `pando sync` has returned."""

    def __init__(self, program, volume, mount, before=()):
        self.program, self.volume, self.point = program, volume, mount
        self.before = before

    def format(self):
        run(self.program, "format", "--engine", "lsm", "--layout", "column", self.volume)

    def mount(self):
        run(*self.before, self.program, "mount", self.volume, self.point)

    def settle(self):
        run(self.program, "sync", self.volume)

    def forget(self):
        """Unmounts, and leaves nothing on this host."""
        run(self.program, "umount", self.point)
        deadline = time.monotonic() + 60
        while self.pid() and time.monotonic() < deadline:
            time.sleep(0.1)
        shutil.rmtree(os.environ["PANDO_HOST_DIRECTORY"], ignore_errors=True)

    def unmount(self):
        run(self.program, "umount", self.point)

    def pid(self):
        """The daemon, if it runs."""
        hosts = os.environ["PANDO_HOST_DIRECTORY"]
        place = f"{hosts}/*" if "://" in self.volume else self.volume
        for lock in glob.glob(f"{place}/owner.lock"):
            with open(lock) as file:
                pid = file.read().strip()
            if pid and os.path.exists(f"/proc/{pid}/exe"):
                return int(pid)
        return None

    def peak(self):
        """Most memory of the daemon so far, in MiB."""
        pid = self.pid()
        if not pid:
            return 0
        with open(f"/proc/{pid}/status") as file:
            return int(re.search(r"VmHWM:\s+(\d+)", file.read())[1]) >> 10

    def commits(self):
        out = subprocess.run(
            [self.program, "--json", "status", self.volume], check=True, capture_output=True
        )
        store = json.loads(out.stdout).get("store") or {}
        return store.get("commit_times")

    def find(self, *arguments):
        return [self.program, "find", f"{self.point}/tree", *arguments]


class Juice:
    """A JuiceFS volume with its metadata in a local Badger database."""

    def __init__(self, program, place, endpoint, mount, writeback):
        self.program, self.place, self.point = program, place, mount
        self.meta, self.endpoint = f"badger://{place}/meta", endpoint
        self.options = ["--writeback"] if writeback else []

    def format(self):
        os.makedirs(f"{self.place}/meta")
        keys = ["--access-key", "key", "--secret-key", "secret"]
        # It wants a bucket that is empty.
        bucket = f"{self.endpoint}/{os.path.basename(self.place)}"
        where = ["--storage", "s3", "--bucket", bucket]
        run(self.program, "format", *where, *keys, "--trash-days", "0", self.meta, "bench")

    def mount(self):
        cache = ["--cache-dir", f"{self.place}/cache", "--no-usage-report", "--backup-meta", "0"]
        # Like PandoFS, which is the only one to change the volume.
        kernel = ["--attr-cache", "3600", "--entry-cache", "3600", "--dir-entry-cache", "3600"]
        run(self.program, "mount", "-d", *cache, *kernel, *self.options, self.meta, self.point)

    def settle(self):
        subprocess.run(["sync", "-f", self.point], check=True)
        staged = f"{self.place}/cache"
        while any(files for path, _, files in os.walk(staged) if "/rawstaging" in path):
            time.sleep(0.05)

    def forget(self):
        run(self.program, "umount", self.point)
        time.sleep(1)
        shutil.rmtree(f"{self.place}/cache", ignore_errors=True)

    def unmount(self):
        run(self.program, "umount", self.point)

    def peak(self):
        return 0

    def commits(self):
        return None

    def find(self, *arguments):
        return None


def counts(endpoint):
    with urllib.request.urlopen(f"{endpoint}/?counts") as answer:
        return json.load(answer)


def drop_kernel_caches():
    run("sync")
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("2\n")


def syncs(point, times):
    """Median and worst time of a write of 4 KiB and its fsync, in ms."""
    took = []
    for number in range(times):
        file = os.open(f"{point}/synced-{number}", os.O_CREAT | os.O_WRONLY)
        start = time.monotonic()
        os.write(file, b"x" * 4096)
        os.fsync(file)
        took.append((time.monotonic() - start) * 1000)
        os.close(file)
    return statistics.median(took), max(took)


def steps(subject, endpoint, tar, bare, given):
    """Runs all steps; returns name -> seconds and requests of each."""
    point = subject.point
    tree, copy, clone = f"{point}/tree", f"{point}/copy", f"{point}/clone"
    listing = ["ls", "-lR", point]
    todo = [
        ("untar", ["tar", "-xf", tar, "-C", point]),
        ("git clone", ["git", "clone", "-q", "--no-local", bare, clone] if bare else None),
        ("ls -lR", listing),
        ("ls -lR, kernel caches dropped", listing),
        ("find (kernel)", ["find", point, "-size", "+100k"]),
        ("pando find", subject.find("-size", "+100k")),
        ("cp -a", ["cp", "-a", tree, copy]),
        ("rm -rf", ["rm", "-rf", copy]),
        ("ls -lR, cold", listing),
        ("read all, cold", ["tar", "-cf", "/dev/null", "--ignore-failed-read", tree]),
    ]
    found = {}
    for name, command in todo:
        if command is None:
            continue
        if name.endswith("dropped"):
            drop_kernel_caches()
        if name == "ls -lR, cold":
            found["memory, MiB"] = (subject.peak(), {})
            subject.forget()
        before = counts(endpoint)
        start = time.monotonic()
        if name == "ls -lR, cold":
            subject.mount()
            mounted = counts(endpoint)
            sent = {kind: mounted[kind] - before.get(kind, 0) for kind in mounted}
            found["mount, cold"] = (time.monotonic() - start, sent)
            before, start = mounted, time.monotonic()
        if name.startswith("read all"):
            for directory, _, names in os.walk(tree):
                for file in names:
                    with open(os.path.join(directory, file), "rb") as opened:
                        while opened.read(1 << 20):
                            pass
        else:
            run(*command)
        if name in ("untar", "git clone", "cp -a", "rm -rf"):
            subject.settle()
        took = time.monotonic() - start
        after = counts(endpoint)
        sent = {kind: after[kind] - before.get(kind, 0) for kind in after}
        sent["most_at_once"] = after["most_at_once"]
        found[name] = (took, sent)
        print(f"{type(subject).__name__} {name}: {took:.2f} s {sent}", file=sys.stderr, flush=True)
    before = counts(endpoint)
    median, worst = syncs(point, given.syncs)
    after = counts(endpoint)
    sent = {kind: after[kind] - before.get(kind, 0) for kind in after}
    found["fsync, median, ms"] = (median, sent)
    found["fsync, worst, ms"] = (worst, {})
    if by_time := subject.commits():
        print(f"commits by time: {by_time}", file=sys.stderr)
    return found


def subjects(given, place, endpoint, mount):
    # The daemon of JuiceFS gives itself this priority.
    before = ("nice", "-n", "-19") if given.juicefs else ()
    if "local" in given.only:
        yield "local", Pando(given.pando, f"{place}/local", mount, before)
    if "store" in given.only:
        url = f"s3://{BUCKET}/bench-{os.getpid()}"
        yield "object store", Pando(given.pando, url, mount, before)
    if given.juicefs:
        for writeback in (False, True):
            own = f"{place}/juice{int(writeback)}"
            name = "JuiceFS --writeback" if writeback else "JuiceFS"
            if not writeback and "juice" not in given.only:
                continue
            yield name, Juice(given.juicefs, own, endpoint, mount, writeback)


def describe(sent):
    names = {"create": "create", "read": "read", "list": "list", "head": "head", "delete": "delete"}
    parts = [f"{sent[kind]} {name}" for kind, name in names.items() if sent.get(kind)]
    for kind, name in (("bytes_out", "out"), ("bytes_in", "in")):
        if sent.get(kind, 0) >= 1 << 20:
            parts.append(f"{sent[kind] >> 20} MiB {name}")
    return ", ".join(parts) or "none"


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("pando")
    arguments.add_argument("directory")
    arguments.add_argument("--files", type=int, default=7000)
    arguments.add_argument("--delay", type=float, default=30)
    arguments.add_argument("--syncs", type=int, default=100)
    arguments.add_argument("--no-git", action="store_true")
    arguments.add_argument("--juicefs", metavar="PROGRAM")
    arguments.add_argument("--only", default="local,store,juice")
    given = arguments.parse_args()
    os.makedirs(given.directory, exist_ok=True)
    place = os.path.realpath(given.directory)
    server = subprocess.Popen(
        [sys.executable, f"{HERE}/slow_s3.py", str(given.delay)], stdout=subprocess.PIPE, text=True
    )
    endpoint = server.stdout.readline().strip()
    os.environ.update(
        AWS_ACCESS_KEY_ID="key",
        AWS_SECRET_ACCESS_KEY="secret",
        AWS_REGION="us-east-1",
        AWS_ENDPOINT_URL=endpoint,
        PANDO_HOST_DIRECTORY=f"{place}/host",
    )
    tar = f"{place}/tree.tar"
    archive(tar, given.files)
    bare = None if given.no_git else repository(place, tar)
    mount = f"{place}/mnt"
    os.makedirs(mount, exist_ok=True)
    results = {}
    try:
        for name, subject in subjects(given, place, endpoint, mount):
            subject.format()
            subject.mount()
            try:
                results[name] = steps(subject, endpoint, tar, bare, given)
            finally:
                subject.unmount()
    finally:
        server.send_signal(signal.SIGTERM)
    load = " ".join(f"{part:.1f}" for part in os.getloadavg())
    print(f"{given.files} files, {os.path.getsize(tar) >> 20} MiB, requests take {given.delay:g} ms")
    print(f"load averages at the end: {load}")
    columns = list(results)
    print(f"| step | {' | '.join(columns)} | requests |")
    print(f"|---|{'---:|' * len(columns)}---|")
    for step in next(iter(results.values())):
        cells = [f"{results[name][step][0]:.2f}" if step in results[name] else "" for name in columns]
        requests = [
            f"{name}: {describe(results[name][step][1])}"
            for name in columns
            if name != "local" and step in results[name]
        ]
        print(f"| {step} | {' | '.join(cells)} | {'; '.join(requests)} |")


if __name__ == "__main__":
    main()
