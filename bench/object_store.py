#!/usr/bin/env python3
"""A volume in an object store whose requests take long, beside a local volume of the same engine.

    bench/object_store.py PANDO DIRECTORY [--files N] [--delay MS] [--rounds N] [--juicefs PROGRAM]

The store is `bench/slow_s3.py`: it answers each request after a delay (30 ms), like one in the same
region. Each step that changes something ends when what it changed is durable: for PandoFS when
`pando sync` has returned, for JuiceFS when close has returned, or with `--writeback` when nothing is
left to be uploaded. All file systems are mounted at once and run each step in turn, in an order that
differs from round to round; each round begins with empty volumes. The table has a line for a step:
the median of the rounds, in seconds, and the requests of the last round as the server counted them.
Caches are warm except in the steps that are called cold: there the volume was unmounted and the
host's directory deleted. JuiceFS without `--writeback` has a part of the files (`--slow-files`), for
it creates an object for each, one after the other; and so does the cold read of JuiceFS, for it reads
an object for each: `(1/N)` is beside those seconds.
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
        """Unmounts, and leaves nothing on this host of a volume in a store."""
        run(self.program, "umount", self.point)
        deadline = time.monotonic() + 60
        while self.pid() and time.monotonic() < deadline:
            time.sleep(0.1)
        if "://" in self.volume:
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

    def __init__(self, program, place, endpoint, mount, options):
        self.program, self.place, self.point = program, place, mount
        self.meta, self.endpoint, self.options = f"badger://{place}/meta", endpoint, options

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


def counts(endpoint, volume):
    """What was requested of the server for the bucket of a volume."""
    bucket = os.path.basename(volume.place) if isinstance(volume, Juice) else BUCKET
    with urllib.request.urlopen(f"{endpoint}/?counts={bucket}") as answer:
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


STEPS = (
    "untar",
    "git clone",
    "ls -lR",
    "ls -lR, kernel caches dropped",
    "find (kernel)",
    "pando find",
    "cp -a",
    "rm -rf",
    "mount, cold",
    "ls -lR, cold",
    "read all, cold",
)
CHANGE = ("untar", "git clone", "cp -a", "rm -rf")


class Subject:
    """A file system, what it is given, and what its steps took."""

    def __init__(self, name, volume, given, tar, bare, part):
        self.name, self.volume, self.given, self.part = name, volume, given, part
        point = volume.point
        self.tree = f"{point}/tree"
        clone = ["git", "clone", "-q", "--no-local", bare, f"{point}/clone"]
        listing = ["ls", "-lR", point]
        self.commands = {
            "untar": ["tar", "-xf", tar, "-C", point],
            "git clone": clone if bare else None,
            "ls -lR": listing,
            "ls -lR, kernel caches dropped": listing,
            "find (kernel)": ["find", point, "-size", "+100k"],
            "pando find": volume.find("-size", "+100k"),
            "cp -a": ["cp", "-a", self.tree, f"{point}/copy"],
            "rm -rf": ["rm", "-rf", f"{point}/copy"],
            "mount, cold": "mount",
            "ls -lR, cold": listing,
            "read all, cold": "read",
        }
        self.seconds, self.requests = {}, {}

    def note(self, name, value, sent):
        self.seconds.setdefault(name, []).append(value)
        self.requests[name] = sent

    def is_part(self, step):
        """Whether a step is of a part of the files only."""
        read = step.startswith("read") and isinstance(self.volume, Juice)
        return self.part or (read and self.given.slow_files < self.given.files)

    def read_all(self, most):
        for directory, _, names in os.walk(self.tree):
            for file in names[:most]:
                most -= 1
                with open(os.path.join(directory, file), "rb") as opened:
                    while opened.read(1 << 20):
                        pass

    def step(self, name, endpoint):
        command = self.commands[name]
        if command is None:
            return
        if name.endswith("dropped"):
            drop_kernel_caches()
        if name == "mount, cold":
            self.note("memory, MiB", self.volume.peak(), {})
            self.volume.forget()
        before = counts(endpoint, self.volume)
        start = time.monotonic()
        if command == "mount":
            self.volume.mount()
        elif command == "read":
            self.read_all(self.given.slow_files if self.is_part(name) else self.given.files)
        else:
            run(*command)
        if name in CHANGE:
            self.volume.settle()
        took = time.monotonic() - start
        self.note(name, took, difference(before, counts(endpoint, self.volume)))
        print(f"{self.name} {name}: {took:.2f} s {self.requests[name]}", file=sys.stderr, flush=True)

    def syncs(self, endpoint):
        before = counts(endpoint, self.volume)
        median, worst = syncs(self.volume.point, self.given.syncs)
        self.note("fsync, median, ms", median, difference(before, counts(endpoint, self.volume)))
        self.note("fsync, worst, ms", worst, {})
        if by_time := self.volume.commits():
            print(f"{self.name}: commits by time: {by_time}", file=sys.stderr)


def difference(before, after):
    sent = {kind: after[kind] - before.get(kind, 0) for kind in after}
    sent["most_at_once"] = after["most_at_once"]
    return sent


def volumes(given, place, endpoint, round_):
    """The file systems of a round: name, volume, and whether it gets a part of the files."""
    # The daemon of JuiceFS gives itself this priority.
    before = ("nice", "-n", "-19") if given.juicefs else ()
    wanted = given.only.split(",")
    if "local" in wanted:
        yield "local", Pando(given.pando, f"{place}/local", f"{place}/mnt-local", before), False
    if "store" in wanted:
        url = f"s3://{BUCKET}/bench-{os.getpid()}-{round_}"
        yield "object store", Pando(given.pando, url, f"{place}/mnt-store", before), False
    juice = {
        "juice": ("JuiceFS", []),
        "writeback": ("JuiceFS --writeback", ["--writeback"]),
        "xattr": ("JuiceFS --writeback --enable-xattr", ["--writeback", "--enable-xattr"]),
    }
    for short, (name, options) in juice.items() if given.juicefs else ():
        if short in wanted:
            own, mount = f"{place}/{short}{round_}", f"{place}/mnt-{short}"
            yield name, Juice(given.juicefs, own, endpoint, mount, options), short == "juice"


def describe(sent):
    names = {"create": "create", "read": "read", "list": "list", "head": "head", "delete": "delete"}
    parts = [f"{sent[kind]} {name}" for kind, name in names.items() if sent.get(kind)]
    for kind, name in (("bytes_out", "out"), ("bytes_in", "in")):
        if sent.get(kind, 0) >= 1 << 20:
            parts.append(f"{sent[kind] >> 20} MiB {name}")
    return ", ".join(parts) or "none"


def one_round(given, place, endpoint, round_, inputs, found):
    subjects = []
    for name, volume, part in volumes(given, place, endpoint, round_):
        os.makedirs(volume.point, exist_ok=True)
        subject = Subject(name, volume, given, *inputs[part], part)
        earlier = found.setdefault(name, subject)
        subject.seconds = earlier.seconds
        found[name] = subject
        volume.format()
        volume.mount()
        subjects.append(subject)
    try:
        turn = round_ % max(len(subjects), 1)
        for step in STEPS:
            for subject in subjects[turn:] + subjects[:turn]:
                subject.step(step, endpoint)
        for subject in subjects:
            subject.syncs(endpoint)
    finally:
        for subject in subjects:
            subject.volume.unmount()
        time.sleep(1)
        shutil.rmtree(f"{place}/local", ignore_errors=True)
        shutil.rmtree(os.environ["PANDO_HOST_DIRECTORY"], ignore_errors=True)
        for subject in subjects:
            if isinstance(subject.volume, Juice):
                shutil.rmtree(subject.volume.place, ignore_errors=True)
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/?forget", method="PUT")).close()


def table(given, found):
    columns = list(found)
    print(f"| step | {' | '.join(columns)} | store to local | requests |")
    print(f"|---|{'---:|' * (len(columns) + 1)}---|")
    rows = [*STEPS, "memory, MiB", "fsync, median, ms", "fsync, worst, ms"]
    for step in rows:
        cells, medians, requests = [], {}, []
        for name, subject in found.items():
            if step not in subject.seconds:
                cells.append("")
                continue
            medians[name] = statistics.median(subject.seconds[step])
            is_part = step in STEPS and subject.is_part(step)
            part = f" (1/{given.files // given.slow_files})" if is_part else ""
            cells.append(f"{medians[name]:.2f}{part}")
            if name != "local":
                requests.append(f"{name}: {describe(subject.requests[step])}")
        local, store = medians.get("local"), medians.get("object store")
        ratio = f"{store / local:.2f}" if local and store else ""
        print(f"| {step} | {' | '.join(cells)} | {ratio} | {'; '.join(requests)} |")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("pando")
    arguments.add_argument("directory")
    arguments.add_argument("--files", type=int, default=7000)
    arguments.add_argument("--slow-files", type=int, default=1000)
    arguments.add_argument("--rounds", type=int, default=1)
    arguments.add_argument("--delay", type=float, default=30)
    arguments.add_argument("--syncs", type=int, default=100)
    arguments.add_argument("--no-git", action="store_true")
    arguments.add_argument("--juicefs", metavar="PROGRAM")
    arguments.add_argument("--only", default="local,store,juice,writeback")
    given = arguments.parse_args()
    given.slow_files = min(given.slow_files, given.files)
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
    inputs = {}
    for part, files in ((False, given.files), (True, given.slow_files)):
        own = f"{place}/input{int(part)}"
        shutil.rmtree(own, ignore_errors=True)
        os.makedirs(own)
        archive(f"{own}/tree.tar", files)
        inputs[part] = (f"{own}/tree.tar", None if given.no_git else repository(own, f"{own}/tree.tar"))
    found, loads = {}, []
    try:
        for round_ in range(given.rounds):
            loads.append(os.getloadavg()[0])
            one_round(given, place, endpoint, round_, inputs, found)
        loads.append(os.getloadavg()[0])
    finally:
        server.send_signal(signal.SIGTERM)
    size = os.path.getsize(inputs[False][0]) >> 20
    print(f"{given.files} files, {size} MiB, requests take {given.delay:g} ms, {given.rounds} rounds")
    print(f"load averages before each round and at the end: {' '.join(f'{x:.1f}' for x in loads)}")
    table(given, found)


if __name__ == "__main__":
    main()
