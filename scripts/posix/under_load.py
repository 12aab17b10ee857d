#!/usr/bin/env python3
"""Writers that know each byte they wrote, beside `pando gc --delete` and `pando fsck` in a loop on
the same mount (run by under_load.sh).

    under_load.py run MOUNT PANDO SEED CALLS MANIFEST     four writers, two of them as nobody
    under_load.py verify MOUNT MANIFEST                   all they left, by checksum

Each writer makes CALLS calls at least, and continues until both commands have run often enough; it
reads back what it wrote, out of snapshots, clones and files without a name too.
"""
import collections
import ctypes
import hashlib
import json
import mmap
import os
import pwd
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

WRITERS = 4
# How often each of the two commands must have ended while the writers were at work.
ENOUGH = 3
SIZE_MAX = 1_200_000
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
KEEP, PUNCH = 1, 2


class Wrong(Exception):
    """Something is not as it was written."""


def same(what, got, wanted):
    if got == wanted:
        return
    shorter = min(len(got), len(wanted))
    at = next((n for n in range(shorter) if got[n] != wanted[n]), shorter)
    raise Wrong(f"{what}: {len(got)} bytes for {len(wanted)}, other from byte {at} on: "
                f"{got[at:at + 16].hex()} for {wanted[at:at + 16].hex()}")


class Place:
    """A directory with what must be in it: a cell with contents for each name, shared by links."""

    def __init__(self, path, files):
        self.path, self.files, self.snapshots = path, files, {}

    def cells(self):
        """The same names with cells of their own, as a clone has them."""
        copied = {}
        return {name: copied.setdefault(id(cell), [cell[0]]) for name, cell in self.files.items()}


class Writer:
    def __init__(self, directory, pando, seed):
        self.directory, self.pando = directory, pando
        self.random = random.Random(seed)
        self.last = collections.deque(maxlen=30)
        self.counts = collections.Counter()
        self.names = 0
        self.held = []
        os.mkdir(f"{directory}/base")
        self.places = [Place(f"{directory}/base", {})]

    # -- helpers

    def name(self, kind="f"):
        self.names += 1
        return f"{kind}{self.names}"

    def bytes(self, length):
        if self.random.random() < 0.2:
            return bytes([self.random.randrange(256)]) * length
        return self.random.randbytes(length)

    def length(self):
        return self.random.randrange(self.random.choice((200, 5000, 70_000, 400_000)))

    def file(self):
        """A place and a name of a file in it, which is made where there is none."""
        place = self.random.choice(self.places)
        if not place.files:
            self.create(place)
        return place, self.random.choice(sorted(place.files))

    def note(self, *words):
        self.counts[words[0]] += 1
        self.last.append(" ".join(str(word) for word in words))

    def run(self, *arguments):
        done = subprocess.run([self.pando, *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            raise Wrong(f"pando {' '.join(arguments)}: {done.stderr}")

    @staticmethod
    def put(cell, offset, data):
        old = cell[0].ljust(offset, b"\0")
        cell[0] = old[:offset] + data + old[offset + len(data):]

    @staticmethod
    def read(path):
        """What the volume has, where the kernel can be had to forget what it knows."""
        fd = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            with os.fdopen(os.dup(fd), "rb") as file:
                return file.read()
        finally:
            os.close(fd)

    # -- calls

    def create(self, place=None):
        place = place or self.random.choice(self.places)
        name, data = self.name(), self.bytes(self.length())
        self.note("create", place.path, name, len(data))
        with open(f"{place.path}/{name}", "xb") as file:
            file.write(data)
        place.files[name] = [data]
        if len(place.files) > 12:
            self.remove(place, self.random.choice(sorted(place.files)))

    def write(self):
        place, name = self.file()
        cell = place.files[name]
        offset = self.random.randrange(min(len(cell[0]) + 100_000, SIZE_MAX))
        if self.random.random() < 0.3:
            offset &= ~4095
        data = self.bytes(self.length())
        self.note("write", place.path, name, offset, len(data))
        fd = os.open(f"{place.path}/{name}", os.O_RDWR)
        if os.pwrite(fd, data, offset) != len(data):
            raise Wrong("a write takes less than it was given")
        if data:
            self.put(cell, offset, data)
        if self.random.random() < 0.1:
            os.fsync(fd)
        os.close(fd)

    def map(self):
        place, name = self.file()
        cell = place.files[name]
        if not cell[0]:
            return
        offset = self.random.randrange(len(cell[0]))
        data = self.bytes(self.length())[:len(cell[0]) - offset]
        self.note("map", place.path, name, offset, len(data))
        fd = os.open(f"{place.path}/{name}", os.O_RDWR)
        with mmap.mmap(fd, len(cell[0])) as view:
            view[offset:offset + len(data)] = data
            view.flush()
        os.close(fd)
        self.put(cell, offset, data)

    def append(self):
        place, name = self.file()
        cell = place.files[name]
        data = self.bytes(self.length())
        if len(cell[0]) + len(data) > SIZE_MAX:
            return
        self.note("append", place.path, name, len(data))
        with open(f"{place.path}/{name}", "ab") as file:
            file.write(data)
        cell[0] += data

    def truncate(self):
        place, name = self.file()
        cell = place.files[name]
        length = self.random.randrange(len(cell[0]) + 20_000)
        self.note("truncate", place.path, name, length)
        os.truncate(f"{place.path}/{name}", length)
        cell[0] = cell[0][:length].ljust(length, b"\0")

    def punch(self):
        place, name = self.file()
        cell = place.files[name]
        if not cell[0]:
            return
        offset, length = self.random.randrange(len(cell[0])), self.random.randrange(1, 100_000)
        self.note("punch", place.path, name, offset, length)
        fd = os.open(f"{place.path}/{name}", os.O_RDWR)
        if libc.fallocate(fd, PUNCH | KEEP, offset, length) != 0:
            raise Wrong(f"a hole: {os.strerror(ctypes.get_errno())}")
        os.close(fd)
        self.put(cell, offset, bytes(min(length, len(cell[0]) - offset)))

    def rename(self):
        place, name = self.file()
        over = self.random.random() < 0.4
        new = self.random.choice(sorted(place.files)) if over else self.name()
        self.note("rename", place.path, name, new)
        os.rename(f"{place.path}/{name}", f"{place.path}/{new}")
        # Both of two names of one file stay.
        if place.files.get(new) is not place.files[name]:
            place.files[new] = place.files.pop(name)

    def link(self):
        place, name = self.file()
        new = self.name("l")
        self.note("link", place.path, name, new)
        os.link(f"{place.path}/{name}", f"{place.path}/{new}")
        place.files[new] = place.files[name]

    def copy(self):
        """Shares extents: within a place, out of a clone, or out of a snapshot."""
        place, name = self.file()
        source = self.random.choice(self.places)
        if source.snapshots and self.random.random() < 0.4:
            snapshot = self.random.choice(sorted(source.snapshots))
            path, files = f"{source.path}/.snapshots/{snapshot}", source.snapshots[snapshot]
        else:
            path, files = source.path, {name: cell[0] for name, cell in source.files.items()}
        if not files:
            return
        other = self.random.choice(sorted(files))
        data, cell = files[other], place.files[name]
        if (source is place and place.files.get(other) is cell) or not data:
            return
        start = self.random.randrange(len(data))
        length = self.random.randrange(1, len(data) - start + 1)
        offset = self.random.randrange(len(cell[0]) + 50_000)
        if self.random.random() < 0.6:
            start, offset = start & ~4095, offset & ~4095
            length = len(data) - start
        if offset + length > SIZE_MAX:
            return
        self.note("copy", f"{path}/{other}", start, "to", f"{place.path}/{name}", offset, length)
        source, target = os.open(f"{path}/{other}", os.O_RDONLY), os.open(
            f"{place.path}/{name}", os.O_RDWR)
        done = 0
        while done < length:
            copied = os.copy_file_range(source, target, length - done, start + done, offset + done)
            if copied == 0:
                raise Wrong(f"copy_file_range copies {done} of {length}")
            done += copied
        os.close(source)
        os.close(target)
        self.put(cell, offset, data[start:start + length])

    def remove(self, place=None, name=None):
        if place is None:
            place, name = self.file()
        self.note("remove", place.path, name)
        os.unlink(f"{place.path}/{name}")
        del place.files[name]

    def hold(self):
        """A file that stays open, mostly without a name from then on."""
        place, name = self.file()
        self.note("hold", place.path, name)
        self.held.append((place, os.open(f"{place.path}/{name}", os.O_RDWR), place.files[name]))
        if self.random.random() < 0.7:
            self.remove(place, name)
        if len(self.held) > 6:
            self.let_go(self.held.pop(0))

    def let_go(self, held):
        _, fd, cell = held
        self.note("let go", len(cell[0]))
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        same("a file held open", os.pread(fd, SIZE_MAX * 4, 0), cell[0])
        os.close(fd)

    def use(self):
        """Writes and reads what is held."""
        if not self.held:
            return
        _, fd, cell = self.random.choice(self.held)
        offset, data = self.random.randrange(len(cell[0]) + 1000), self.bytes(self.length())
        self.note("use", offset, len(data))
        if os.pwrite(fd, data, offset) != len(data):
            raise Wrong("a write takes less than it was given")
        if data:
            self.put(cell, offset, data)
        same("a file held open", os.pread(fd, SIZE_MAX * 4, 0), cell[0])

    def snapshot(self):
        place = self.random.choice(self.places)
        name = self.name("s")
        self.note("snapshot", place.path, name)
        os.mkdir(f"{place.path}/.snapshots/{name}")
        place.snapshots[name] = {name: cell[0] for name, cell in place.files.items()}
        if len(place.snapshots) > 3:
            first = self.random.choice(sorted(place.snapshots))
            self.note("drop", place.path, first)
            os.rmdir(f"{place.path}/.snapshots/{first}")
            del place.snapshots[first]

    def clone(self):
        place = self.random.choice(self.places)
        path = f"{self.directory}/{self.name('clone')}"
        source, files = place.path, place.cells()
        if place.snapshots and self.random.random() < 0.4:
            snapshot = self.random.choice(sorted(place.snapshots))
            source = f"{place.path}/.snapshots/{snapshot}"
            # Links are not distinguished there, and none of its files is changed through one name.
            links = collections.Counter(os.stat(f"{source}/{n}").st_ino
                                        for n in place.snapshots[snapshot])
            if any(count > 1 for count in links.values()):
                return
            files = {name: [data] for name, data in place.snapshots[snapshot].items()}
        self.note("clone", source, path)
        self.run("clone", source, path)
        self.places.append(Place(path, files))
        if len(self.places) > 3:
            gone = self.places.pop(self.random.choice((0, 1)))
            for held in [held for held in self.held if held[0] is gone]:
                self.held.remove(held)
                self.let_go(held)
            self.check_place(gone)
            self.note("rmr", gone.path)
            self.run("rmr", gone.path)

    def tree(self):
        """Many small files that come and go."""
        path = f"{self.directory}/{self.name('tree')}"
        self.note("tree", path)
        os.makedirs(f"{path}/a/b")
        for n in range(40):
            with open(f"{path}/a/b/{n}", "wb") as file:
                file.write(self.bytes(self.random.randrange(9000)))
        if self.random.random() < 0.5:
            self.run("rmr", path)
        else:
            shutil.rmtree(path)

    def check(self):
        place, name = self.file()
        self.note("check", place.path, name)
        same(f"{place.path}/{name}", self.read(f"{place.path}/{name}"), place.files[name][0])

    def check_snapshot(self):
        place = self.random.choice(self.places)
        if not place.snapshots:
            return
        snapshot = self.random.choice(sorted(place.snapshots))
        self.note("check snapshot", place.path, snapshot)
        self.check_all(f"{place.path}/.snapshots/{snapshot}", place.snapshots[snapshot])

    # -- all

    def check_all(self, path, files):
        names = sorted(os.listdir(path))
        if names != sorted(files):
            raise Wrong(f"{path} has {names}, not {sorted(files)}")
        for name, data in files.items():
            same(f"{path}/{name}", self.read(f"{path}/{name}"), data)

    def check_place(self, place):
        self.check_all(place.path, {name: cell[0] for name, cell in place.files.items()})
        for snapshot, files in place.snapshots.items():
            self.check_all(f"{place.path}/.snapshots/{snapshot}", files)

    CALLS = ((create, 10), (write, 20), (map, 4), (append, 6), (truncate, 6), (punch, 5),
             (rename, 7), (link, 2), (copy, 12), (remove, 5), (hold, 4), (use, 5), (snapshot, 3),
             (clone, 1), (tree, 1), (check, 14), (check_snapshot, 3))

    def step(self):
        calls, weights = zip(*self.CALLS)
        self.random.choices(calls, weights)[0](self)

    def end(self):
        """All once more; what each path must hold."""
        for held in self.held:
            self.let_go(held)
        manifest = {}
        for place in self.places:
            self.check_place(place)
            groups = [(place.path, {name: cell[0] for name, cell in place.files.items()})]
            groups += [(f"{place.path}/.snapshots/{name}", files)
                       for name, files in place.snapshots.items()]
            for path, files in groups:
                manifest[path] = {name: hashlib.sha256(data).hexdigest()
                                  for name, data in files.items()}
        return manifest


def writer(directory, pando, seed, calls, enough, result):
    """A process: its calls, then what it leaves, into a file."""
    one, done = Writer(directory, pando, seed), 0
    try:
        while done < calls or enough[0] == 0:
            one.step()
            done += 1
        manifest = one.end()
    except (Wrong, OSError) as error:
        print(f"under_load: {directory}, seed {seed}, call {done}: {error}; after", file=sys.stderr)
        print("\n".join(one.last), file=sys.stderr, flush=True)
        return 1
    with open(result, "w") as file:
        json.dump({"calls": done, "by": one.counts, "manifest": manifest}, file)
    return 0


class Command(threading.Thread):
    """A command again and again until the writers end, each time with a whole answer."""

    def __init__(self, arguments, judge):
        super().__init__(daemon=True)
        self.arguments, self.judge = arguments, judge
        self.ran, self.wrong, self.stop = 0, None, False
        self.most = collections.Counter()

    def run(self):
        while not self.stop and self.wrong is None:
            done = subprocess.run(self.arguments, capture_output=True, text=True)
            try:
                report = json.loads(done.stdout.splitlines()[-1])
                well = done.returncode == 0 and self.judge(report)
            except (IndexError, ValueError):
                report, well = {}, False
            if not well:
                # If it persists it is damage; otherwise the state was read too late.
                again = subprocess.run(self.arguments, capture_output=True, text=True)
                self.wrong = f"{' '.join(self.arguments)}: {done.returncode}\n" \
                             f"{done.stdout}{done.stderr}and once more: {again.returncode}\n" \
                             f"{again.stdout}{again.stderr}"
            for key, value in report.items():
                if isinstance(value, int):
                    self.most[key] = max(self.most[key], value)
            self.ran += 1


def run(mount, pando, seed, calls, manifest):
    enough = mmap.mmap(-1, 4096)
    nobody, children = pwd.getpwnam("nobody"), {}
    for n in range(WRITERS):
        directory, result = f"{mount}/writer{n}", f"{manifest}.{n}"
        os.mkdir(directory)
        open(result, "w").close()
        if n % 2:
            for path in (directory, result):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                if n % 2:
                    os.setgroups([])
                    os.setgid(nobody.pw_gid)
                    os.setuid(nobody.pw_uid)
                code = writer(directory, pando, seed * 100 + n, calls, enough, result)
            finally:
                os._exit(code)
        children[child] = result
    commands = [
        Command([pando, "gc", "--delete", "--grace", "0s", "--json", mount],
                lambda report: "garbage_bytes" in report),
        Command([pando, "fsck", "--json", mount],
                lambda report: report["clean"] is True and report["findings"] == 0),
    ]
    for command in commands:
        command.start()
    total, by, known, failed = 0, collections.Counter(), {}, False
    while children and not failed:
        if min(command.ran for command in commands) >= ENOUGH:
            enough[0] = 1
        child, status = wait_any(children)
        failed = any(command.wrong for command in commands)
        if child == 0:
            continue
        failed |= status != 0
        result = children.pop(child)
        if status == 0:
            with open(result) as file:
                report = json.load(file)
            total += report["calls"]
            by.update(report["by"])
            known.update(report["manifest"])
    for command in commands:
        command.stop = True
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    for command in commands:
        command.join()
        if command.wrong:
            print(f"under_load: {command.wrong}", file=sys.stderr)
            failed = True
    if failed:
        sys.exit(1)
    with open(manifest, "w") as file:
        json.dump({os.path.relpath(path, mount): files for path, files in known.items()}, file)
    collected, checked = commands
    if collected.most["freed_bytes"] < 1 << 20:
        sys.exit(f"under_load: gc freed {collected.most['freed_bytes']} bytes of what a killed writer left")
    print(f"under_load: seed {seed}: {total} calls "
          f"({', '.join(f'{count} {name}' for name, count in by.most_common())}) beside "
          f"{collected.ran} gc (at most {collected.most['garbage_bytes']} bytes that nothing "
          f"names, {collected.most['freed_bytes']} freed at once) and {checked.ran} fsck "
          f"(at most {checked.most['extents']} extents)")


def wait_any(children):
    """A child that has ended, or 0 after a moment in which none has."""
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        for child in children:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return ended, status
        time.sleep(0.02)
    return 0, 0


def verify(mount, manifest):
    with open(manifest) as file:
        known = json.load(file)
    count = 0
    for path, files in known.items():
        names = sorted(os.listdir(f"{mount}/{path}"))
        if names != sorted(files):
            sys.exit(f"under_load: {path} has {names}, not {sorted(files)}")
        for name, digest in files.items():
            with open(f"{mount}/{path}/{name}", "rb") as file:
                if hashlib.sha256(file.read()).hexdigest() != digest:
                    sys.exit(f"under_load: {path}/{name} is not what was written")
            count += 1
    if count == 0:
        sys.exit("under_load: nothing to verify")
    print(f"under_load: {count} files in {len(known)} directories and snapshots as written")


if sys.argv[1] == "run":
    run(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6])
else:
    verify(sys.argv[2], sys.argv[3])
