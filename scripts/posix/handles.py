#!/usr/bin/env python3
"""File handles: what name_to_handle_at gave is opened again after the kernel forgot the file, after
a remount, after a crash; and not after the file was removed (run by programs.sh, as root).

    handles.py DIRECTORY PANDO VOLUME MOUNT [FILES]
                  a directory of the mount; FILES: how many to measure with, and nothing else
"""
import ctypes
import errno
import os
import signal
import subprocess
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, CONNECTABLE, BYTES = -100, 2, 128
# For a symbolic link itself, and for a file opened without access.
O_PATH = os.O_PATH | os.O_NOFOLLOW
done = 0


def check(what, truth):
    global done
    done += 1
    if not truth:
        sys.exit(f"handles: {what}")


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("value", ctypes.c_ubyte * BYTES)]


def handle(path, flags=0):
    own, mount = Handle(bytes=BYTES), ctypes.c_int()
    if libc.name_to_handle_at(AT_FDCWD, path.encode(), ctypes.byref(own), ctypes.byref(mount), flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return own


def opened(mount, own, flags=os.O_RDONLY):
    fd = libc.open_by_handle_at(mount, ctypes.byref(own), flags)
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return fd


def forget():
    """Has the kernel let go of what nobody uses."""
    for _ in range(2):
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("2\n")


class Mount:
    def __init__(self, pando, volume, point):
        self.pando, self.volume, self.point = pando, volume, point

    def again(self, crash=False):
        if crash:
            # Its daemon, by the number that the volume has.
            with open(os.path.join(self.volume, "owner.lock")) as file:
                pid = int(file.read().strip())
            os.kill(pid, signal.SIGKILL)
            subprocess.run(["umount", "-l", self.point], check=True)
        else:
            subprocess.run([self.pando, "umount", self.point], check=True, stdout=subprocess.DEVNULL)
        options = ["-o", "suid,dev"]
        subprocess.run([self.pando, "mount", *options, self.volume, self.point], check=True, stdout=subprocess.DEVNULL)

    def root(self):
        return os.open(self.point, os.O_RDONLY | os.O_DIRECTORY)


def read(mount, own):
    root = mount.root()
    try:
        fd = opened(root, own)
        try:
            return os.read(fd, 100)
        finally:
            os.close(fd)
    finally:
        os.close(root)


def gone(mount, own, what):
    try:
        read(mount, own)
    except OSError as error:
        check(f"{what}: {error}", error.errno == errno.ESTALE)
        return
    check(f"{what}: its handle opens", False)


def path_of(mount, own, flags):
    root = mount.root()
    fd = opened(root, own, flags)
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
        os.close(root)


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def main(top, mount):
    at = lambda *names: os.path.join(top, *names)
    os.makedirs(at("d", "sub", "deeper"))
    contents = {}
    for name in ["a", "b", "replaced", "d/one", "d/sub/two", "d/sub/deeper/three"]:
        write(at(name), name)
        contents[name] = name
    os.link(at("a"), at("d/linked"))
    os.symlink("nowhere", at("link"))
    os.mkfifo(at("fifo"))
    many = [f"d/sub/f{number}" for number in range(1024)]
    for name in many:
        write(at(name), name)
        contents[name] = name
    subprocess.run([mount.pando, "snapshot", "create", at("d"), "s"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([mount.pando, "clone", at("d"), at("clone")], check=True, stdout=subprocess.DEVNULL)
    contents["d/.snapshots/s/sub/two"] = "d/sub/two"
    contents["clone/sub/two"] = "d/sub/two"
    handles = {name: handle(at(name)) for name in contents}
    directories = {name: handle(at(name)) for name in ["d", "d/sub", "d/sub/deeper", "clone", "clone/sub"]}
    special = {name: handle(at(name)) for name in ["link", "fifo"]}
    # No listing shows `.snapshots`, so the kernel cannot find the path of a directory below one again
    # (docs/decisions/0136). Files there open, as those above do.
    in_snapshot = handle(at("d/.snapshots/s/sub"))
    shown = path_of(mount, in_snapshot, os.O_RDONLY | os.O_DIRECTORY)
    check(f"a directory in a snapshot is shown as {shown}", shown == at("d/.snapshots/s/sub"))

    def all_open(when):
        for name, own in handles.items():
            found = read(mount, own)
            check(f"{when}: {name} reads {found}", found.decode() == contents[name])
        for name, own in directories.items():
            shown = path_of(mount, own, os.O_RDONLY | os.O_DIRECTORY)
            check(f"{when}: {name} is shown as {shown}", shown == at(name))
        for name, own in special.items():
            path_of(mount, own, O_PATH)

    all_open("at once")
    forget()
    all_open("after the kernel forgot them")
    mount.again()
    gone(mount, in_snapshot, "a directory in a snapshot, after a remount")
    all_open("after a remount")
    gone(mount, in_snapshot, "a directory in a snapshot, whose files were opened")
    os.sync()
    mount.again(crash=True)
    all_open("after a crash")
    # Names that point there, from the parent in the handle.
    try:
        own = handle(at("d/sub/two"), CONNECTABLE)
        forget()
        shown = path_of(mount, own, os.O_RDONLY)
        check(f"a connectable handle is shown as {shown}", shown == at("d/sub/two"))
    except OSError as error:
        check(f"a connectable handle: {error}", error.errno == errno.EINVAL)
    # Handles outlive renames of the file and of the directories above it.
    os.rename(at("b"), at("d/sub/moved"))
    os.rename(at("d/sub/deeper"), at("deeper"))
    os.rename(at("d"), at("e"))
    for name in ["d", "d/sub"]:
        directories.pop(name)
    deeper = directories.pop("d/sub/deeper")
    for when in ["at once", "later"]:
        for name in ["b", "d/one", "d/sub/deeper/three", "d/sub/f77"]:
            check(f"renamed, {when}: {name}", read(mount, handles[name]).decode() == name)
        shown = path_of(mount, deeper, os.O_RDONLY | os.O_DIRECTORY)
        check(f"renamed, {when}: shown as {shown}", shown == at("deeper"))
        forget()
    # One of two names is removed, and then the other.
    os.unlink(at("a"))
    forget()
    check("one name is left", read(mount, handles["a"]) == b"a")
    os.unlink(at("e/linked"))
    os.unlink(at("replaced"))
    write(at("replaced"), "another")
    os.unlink(at("e/sub/f500"))
    for when in ["at once", "later"]:
        for name in ["a", "replaced", "d/sub/f500"]:
            gone(mount, handles[name], f"removed, {when}: {name}")
        forget()
    # An open one has no name and exists for the processes that have it open.
    fd = os.open(at("e/one"), os.O_RDONLY)
    os.unlink(at("e/one"))
    forget()
    check("open and removed", os.read(fd, 10) == b"d/one")
    os.close(fd)
    forget()
    gone(mount, handles["d/one"], "removed and closed")
    subprocess.run([mount.pando, "rmr", at("clone")], check=True, stdout=subprocess.DEVNULL)
    forget()
    gone(mount, handles["clone/sub/two"], "of a clone that was removed")
    gone(mount, directories["clone"], "the clone")
    mount.again()
    gone(mount, handles["clone/sub/two"], "of a clone that was removed, after a remount")
    check("of a snapshot", read(mount, handles["d/.snapshots/s/sub/two"]) == b"d/sub/two")
    # As NFS servers do: all files, forgotten, opened and changed.
    for name in many[:400]:
        root = mount.root()
        fd = opened(root, handles[name], os.O_RDWR)
        os.write(fd, b"D")
        os.close(fd)
        os.close(root)
    for name in many[:400]:
        with open(at(name.replace("d/", "e/", 1))) as file:
            check(f"{name} was changed through its handle", file.read() == "D" + name[1:])
    print(f"handles: {done} checks")


def measure(top, mount, files):
    """How long a handle takes whose file the kernel does not hold."""
    each = 1000
    picked = []
    for number in range(0, files, each):
        directory = os.path.join(top, f"m{number}")
        os.mkdir(directory)
        for inner in range(min(each, files - number)):
            write(os.path.join(directory, f"f{inner}"), "x")
        picked.append(handle(os.path.join(directory, "f7")))
        picked.append(handle(os.path.join(directory, "f501")))
    for when in ["just made", "after a remount", "a minute later"]:
        if when == "after a remount":
            mount.again()
        elif when == "a minute later":
            time.sleep(60)
        forget()
        times = []
        for own in picked:
            start = time.monotonic()
            read(mount, own)
            times.append((time.monotonic() - start) * 1000)
        rest = sorted(times[1:])
        print(f'{{"handles": {len(picked)}, "files": {files}, "when": "{when}", "first_ms": {times[0]:.2f}, '
              f'"median_ms": {rest[len(rest) // 2]:.2f}, "worst_ms": {rest[-1]:.2f}}}')


if __name__ == "__main__":
    where = os.path.join(sys.argv[1], "handles")
    os.mkdir(where)
    if len(sys.argv) > 5:
        measure(where, Mount(*sys.argv[2:5]), int(sys.argv[5]))
    else:
        main(where, Mount(*sys.argv[2:5]))
