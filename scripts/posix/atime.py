#!/usr/bin/env python3
"""When the time of the last read is kept, on a mounted volume (run by programs.sh).

    atime.py DIRECTORY relatime|noatime     how it is mounted; as any user
"""
import os
import sys
import time

directory, mode = sys.argv[1:3]
done = 0


def check(what, truth):
    global done
    done += 1
    if not truth:
        sys.exit(f"atime ({mode}): {what}")


def read(path, flags=0):
    fd = os.open(path, os.O_RDONLY | flags)
    content = os.read(fd, 100000)
    os.close(fd)
    return content


def atime(path):
    return os.stat(path).st_atime_ns


def read_times(what, change, look, path):
    """`change` is one of what is at `path`, `look` reads it."""
    for turn in range(2):
        change()
        changed = os.stat(path)
        time.sleep(0.02)
        look()
        first = atime(path)
        if mode == "noatime":
            check(f"{what} {turn}: a read is noted", first == changed.st_atime_ns)
            continue
        check(f"{what} {turn}: the first read after a change is not noted", first > changed.st_ctime_ns)
        time.sleep(0.02)
        look()
        check(f"{what} {turn}: the second is", atime(path) == first)
        check(f"{what} {turn}: reading changes another time",
              (os.stat(path).st_mtime_ns, os.stat(path).st_ctime_ns) == (changed.st_mtime_ns, changed.st_ctime_ns))


def write(path, length):
    with open(path, "wb") as file:
        file.write(b"x" * length)


def forget(path):
    """What the kernel has of the contents: a read that it answers by itself is noted by nobody."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def set_by_hand(path):
    """Times that somebody sets are kept, however it is mounted."""
    moment = 1_234_567_890_123_456_789
    os.utime(path, ns=(moment, moment))
    check("a time that was set", atime(path) == moment)
    before = time.time_ns()
    forget(path)
    read(path)
    noted = atime(path) != moment
    check("a read after it", noted == (mode == "relatime"))
    check("it is the present", not noted or before - 10**9 <= atime(path) <= time.time_ns() + 10**9)


os.mkdir(os.path.join(directory, mode))
os.chdir(os.path.join(directory, mode))
for length in (10, 50000):
    path = f"file{length}"
    read_times(f"a file of {length} bytes", lambda: write(path, length), lambda: read(path), path)
    set_by_hand(path)
os.mkdir("d")
names = iter(range(100))
read_times("a directory", lambda: write(f"d/{next(names)}", 1), lambda: os.listdir("d"), "d")
# A snapshot is as it was.
os.mkdir(".snapshots/s")
before = atime(".snapshots/s/file10")
read(".snapshots/s/file10")
check("a read in a snapshot is noted", atime(".snapshots/s/file10") == before)
os.rmdir(".snapshots/s")
print(f"atime: {done} checks of {mode}")
