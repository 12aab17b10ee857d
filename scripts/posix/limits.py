#!/usr/bin/env python3
"""Limits at their edge (docs/limits.md), on a mounted volume, started by root (by limits.sh).

    limits.py DIRECTORY PID ENTRIES OPEN LINKS [USER]
PID: the daemon, whose memory is looked at. USER: who does all of it, in a directory of its own, but
for having the kernel forget names, which is root's. Prints one JSON object a measurement.
"""
import errno
import json
import os
import pwd
import resource
import socket
import statistics
import subprocess
import sys
import time

directory, daemon, entries, handles, links = sys.argv[1], *map(int, sys.argv[2:6])
user = (sys.argv[6:] or ["root"])[0]
# How root is asked by who is not.
root = None
SIZE_MAX = (1 << 63) - 1
# KiB that a process may use for listing a directory, of whatever size.
MEMORY_MAX = 64 << 10
# How often a listing is interrupted to check the daemon's memory.
SAMPLES = 50
# How often names are made, looked up and removed in a large and in a small directory, and how many.
TURNS, NAMES = int(os.environ.get("TURNS", "15")), int(os.environ.get("NAMES", "400"))


def check(what, truth):
    if not truth:
        sys.exit(f"limits: {what}")


def fails(number, what, act):
    try:
        act()
    except OSError as error:
        check(f"{what}: {errno.errorcode[error.errno]}, not {errno.errorcode[number]}", error.errno == number)
        return
    check(f"{what}: no error", False)


def show(**what):
    print(json.dumps(what if user == "root" else {**what, "user": user}), flush=True)


def memory():
    """Memory of the daemon that no file backs, in KiB."""
    with open(f"/proc/{daemon}/status") as status:
        return int(next(line for line in status if line.startswith("RssAnon")).split()[1])


def sizes():
    fd = os.open("size", os.O_RDWR | os.O_CREAT)
    top = SIZE_MAX
    os.ftruncate(fd, top)
    check("the greatest size", os.fstat(fd).st_size == top)
    os.pwrite(fd, b"last", top - 4)
    check("its last bytes", os.pread(fd, 4, top - 4) == b"last")
    check("the hole before them", os.lseek(fd, 0, os.SEEK_DATA) > top - 8192)
    fails(errno.EINVAL, "beyond it", lambda: os.pwrite(fd, b"xx", top))
    os.ftruncate(fd, 10)
    os.unlink("size")
    show(limit="file size", bytes=top)


def attributes():
    open("x", "w").close()
    os.setxattr("x", "user." + "n" * 250, b"")
    os.setxattr("x", "user.v", b"v" * 65536)
    fails(errno.E2BIG, "a larger value", lambda: os.setxattr("x", "user.w", b"v" * 65537))
    fails(errno.ERANGE, "a longer name", lambda: os.setxattr("x", "user." + "n" * 251, b""))
    count = 1
    while True:
        try:
            os.setxattr("x", f"user.v{count}", b"v" * 65000)
        except OSError as error:
            check("ENOSPC for attributes", error.errno == errno.ENOSPC)
            break
        count += 1
        check("attributes are bounded", count < 100)
    check("what is there stays", os.getxattr("x", "user.v") == b"v" * 65536)
    show(limit="attributes", values_of_64_kib=count)


def depth():
    top = os.getcwd()
    for _ in range(1000):
        os.mkdir("d")
        os.chdir("d")
    open("deepest", "w").write("here")
    check("read at depth 1000", open("deepest").read() == "here")
    check("the way back", os.getcwd().count("/d") >= 1000)
    os.unlink("deepest")
    for _ in range(1000):
        os.chdir("..")
        os.rmdir("d")
    check("back at the top", os.getcwd() == top)
    show(limit="depth", directories=1000)


def hold(start, stop, ready, go):
    """A process that holds some of the open files."""
    held = [os.open(f"open/{n}", os.O_RDWR | os.O_CREAT) for n in range(start, stop)]
    os.write(ready, b"r")
    os.read(go, 1)
    for n, fd in zip(range(start, stop, 97), held[::97]):
        os.unlink(f"open/{n}")
        os.pwrite(fd, b"still", 0)
        if os.pread(fd, 5, 0) != b"still":
            os._exit(1)
    os._exit(0)


def open_files():
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    step = min(most - 50, handles)
    os.mkdir("open")
    before, children = memory(), []
    ready, writer = os.pipe()
    waits, go = os.pipe()
    for start in range(0, handles, step):
        child = os.fork()
        if child == 0:
            os.close(go)
            hold(start, min(start + step, handles), writer, waits)
        children.append(child)
    os.close(waits)
    got = 0
    while got < len(children):
        got += len(os.read(ready, 100))
    grown = memory() - before
    os.close(go)
    for child in children:
        check("an open file without a name", os.waitpid(child, 0)[1] == 0)
    show(limit="open files", files=handles, processes=len(children), daemon_grew_kib=grown)


def many_links():
    open("first", "w").close()
    os.mkdir("links")
    for n in range(links - 1):
        os.link("first", f"links/{n}")
    check("links are counted", os.stat("first").st_nlink == links)
    if links == 1 << 20:
        fails(errno.EMLINK, "one more", lambda: os.link("first", "links/more"))
    show(limit="links", links=links, edge=links == 1 << 20)


def large_directory():
    os.mkdir("large")
    os.mkdir("small")
    child = os.fork()
    for n in range(child == 0, entries, 2):
        os.close(os.open(f"large/entry-{n:08}", os.O_WRONLY | os.O_CREAT, 0o644))
    if child == 0:
        os._exit(0)
    check("the other half", os.waitpid(child, 0)[1] == 0)
    for n in range(100):
        os.close(os.open(f"small/entry-{n:08}", os.O_WRONLY | os.O_CREAT, 0o644))
    first, first_of_few, before = [], [], memory()
    for _ in range(9):
        for place, took in (("large", first), ("small", first_of_few)):
            # A change, so that the kernel has cached no listing.
            open(f"{place}/change", "w").close()
            os.unlink(f"{place}/change")
            start = time.perf_counter()
            with os.scandir(place) as listing:
                next(listing)
            took.append((time.perf_counter() - start) * 1000)
    streamed = statistics.median(first_bytes("large") for _ in range(5))
    streamed_of_few = statistics.median(first_bytes("small") for _ in range(5))
    held = ls("large")
    start, count, peak = time.perf_counter(), 0, 0
    with os.scandir("large") as listing:
        for _ in listing:
            count += 1
            if count % (entries // SAMPLES) == 0:
                peak = max(peak, memory() - before)
    check(f"{count} of {entries} entries are listed", count == entries)
    check(f"the daemon grew by {peak} KiB while a directory was listed", peak < MEMORY_MAX)
    check(f"ls -f took {held} KiB", held < MEMORY_MAX)
    show(limit="directory", entries=entries, first_entry_ms=round(statistics.median(first), 2),
         first_entry_worst_ms=round(max(first), 2),
         first_entry_of_few_ms=round(statistics.median(first_of_few), 2), listing_s=round(time.perf_counter() - start, 2),
         ls_f_first_bytes_ms=round(streamed, 2), ls_f_first_bytes_of_few_ms=round(streamed_of_few, 2),
         ls_kib=held, daemon_grew_kib=peak)
    rounds = {"create": [], "stat": [], "absent": [], "unlink": []}
    for turn in range(TURNS):
        took = {}
        for place in (("large", "small") if turn % 2 else ("small", "large")):
            names = [f"{place}/new-{turn}-{n}" for n in range(NAMES)]
            for what, act in (("create", lambda name: os.close(os.open(name, os.O_WRONLY | os.O_CREAT))),
                              ("stat", os.stat),
                              ("absent", lambda name: absent(name + "-no")),
                              ("unlink", os.unlink)):
                if what == "stat":
                    forget_names()
                start = time.perf_counter()
                for name in names:
                    act(name)
                took[place, what] = time.perf_counter() - start
        for what, ratios in rounds.items():
            ratios.append(took["large", what] / took["small", what])
    ratios = {what: round(statistics.median(values), 2) for what, values in rounds.items()}
    show(limit="directory", entries=entries, large_to_small=ratios)
    return (statistics.median(first), statistics.median(first_of_few)), (streamed, streamed_of_few), ratios


def forget_names():
    """The kernel would answer for names that it has just seen."""
    if root is not None:
        root.sendall(b"f")
        check("root has them forgotten", root.recv(1) == b"f")
        return
    with open("/proc/sys/vm/drop_caches", "w") as drop:
        drop.write("2")


def become():
    """Continues as the user, in a child; the parent stays root and does what it is requested."""
    global root
    account = pwd.getpwnam(user)
    mine, root = socket.socketpair()
    child = os.fork()
    if child == 0:
        mine.close()
        os.setgroups([])
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
        check(f"it is {user}", os.getuid() == account.pw_uid != 0)
        return
    root.close()
    root = None
    while mine.recv(1):
        forget_names()
        mine.sendall(b"f")
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def first_bytes(place):
    """Milliseconds until `ls -f` prints something of a directory of which the kernel keeps no listing."""
    open(f"{place}/change", "w").close()
    os.unlink(f"{place}/change")
    start = time.perf_counter()
    with subprocess.Popen(["ls", "-f", place], stdout=subprocess.PIPE) as child:
        first = child.stdout.read1(1)
        took = (time.perf_counter() - start) * 1000
        check("ls -f prints", len(first) == 1)
        child.kill()
    return took


def ls(place):
    """The most memory that `ls -f` holds, in KiB."""
    child = subprocess.Popen(["ls", "-f", place], stdout=subprocess.PIPE)
    while child.stdout.read1(1 << 20):
        pass
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = status
    check("ls -f ends well", status == 0)
    return used.ru_maxrss


def absent(name):
    try:
        os.stat(name)
    except FileNotFoundError:
        pass


if user != "root":
    become()
os.mkdir(os.path.join(directory, "limits"))
os.chdir(os.path.join(directory, "limits"))
sizes()
attributes()
depth()
open_files()
many_links()
(first, first_of_few), (streamed, streamed_of_few), ratios = large_directory()
# A busy machine takes longer for each.
check(f"the first entry takes {first} ms, and of few {first_of_few} ms", first < max(50, 10 * first_of_few))
check(f"the first bytes of ls -f take {streamed} ms, and of few {streamed_of_few} ms",
      streamed < max(50, 10 * streamed_of_few))
if os.environ.get("BARS"):
    check(f"a large directory is slower: {ratios}", max(ratios.values()) <= 1.5)
    check(f"the first entry takes {first} ms", first < 50)
    check(f"the first bytes of ls -f take {streamed} ms", streamed < 50)
