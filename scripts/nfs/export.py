"""What nfs-export.sh checks, in its guest:  export.py PANDO

A volume is mounted, and a server of NFS exports that mount: Ganesha, or the kernel's. The client is the
kernel's. It keeps no attributes and no names, so each call asks the server. Handles are those that the
client got from the server: name_to_handle_at(2) of an NFS mount wraps them.
"""

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import random
import signal
import socket
import subprocess
import sys
import time

PANDO = sys.argv[1]
MOUNT, NFS = "/mnt/m", "/mnt/nfs"
FILES, PICKED = 1000, range(0, 1000, 5)
CLIENT = "addr=127.0.0.1,proto=tcp,port=2049,hard,actimeo=0,lookupcache=none"
LEASE_SECONDS = 10
AT_FDCWD, HANDLE_BYTES = -100, 128
libc = ctypes.CDLL(None, use_errno=True)


def run(*command, environment=None):
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.returncode}: {done.stdout}")
    return done.stdout


def pando(*arguments):
    # The libraries of the servers are not the program's.
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    return run(PANDO, *arguments, environment=environment)


def check(what, truth):
    if not truth:
        sys.exit(f"export: {what}")


def await_(what, ready):
    deadline = time.monotonic() + 120
    while not ready():
        check(f"{what} within 120 s", time.monotonic() < deadline)
        time.sleep(0.1)


class Handle(ctypes.Structure):
    _fields_ = [
        ("bytes", ctypes.c_uint),
        ("type", ctypes.c_int),
        ("value", ctypes.c_ubyte * HANDLE_BYTES),
    ]


def handle(path):
    own, mount = Handle(bytes=HANDLE_BYTES), ctypes.c_int()
    if libc.name_to_handle_at(AT_FDCWD, path.encode(), ctypes.byref(own), ctypes.byref(mount), 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return own


@contextlib.contextmanager
def opened(own, flags=os.O_RDONLY):
    mount = os.open(NFS, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fd = libc.open_by_handle_at(mount, ctypes.byref(own), flags)
        if fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(mount)
    try:
        yield fd
    finally:
        os.close(fd)


def forget():
    """Has the kernel drop what nobody uses: inodes of the volume's mount and of the NFS mount."""
    for _ in range(2):
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("2\n")


def write(path, data):
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Ganesha:
    """Its handles have the number of the mount's device, so that must be the same after a remount. (It is
    not installed, so it does not find the modules of its ID mapper; UseGetpwnam does without.)"""

    any_device = False
    CONFIGURATION = f"""
NFS_CORE_PARAM {{
    Protocols = 3, 4;
    MNT_Port = 20048;
    Enable_NLM = false;
    Enable_RQUOTA = false;
    Plugins_Dir = "{os.environ["PLUGINS"]}";
}}
NFSv4 {{
    Lease_Lifetime = {LEASE_SECONDS};
    Grace_Period = {LEASE_SECONDS};
    Only_Numeric_Owners = true;
    UseGetpwnam = true;
}}
EXPORT {{
    Export_Id = 1;
    Path = {MOUNT};
    Pseudo = /volume;
    Access_Type = RW;
    Squash = No_Root_Squash;
    Attr_Expiration_Time = 0;
    FSAL {{ Name = VFS; }}
}}
"""

    def __init__(self, version):
        self.version, self.name = version, f"Ganesha, NFS {version}"
        if version == "3":
            self.source, self.type = f"127.0.0.1:{MOUNT}", "nfs"
            self.options = "mountaddr=127.0.0.1,mountvers=3,mountproto=tcp,mountport=20048,nolock"
        else:
            self.source, self.type, self.options = "127.0.0.1:/volume", "nfs4", "clientaddr=127.0.0.1"

    def start(self):
        with open("/tmp/ganesha.conf", "w") as file:
            file.write(self.CONFIGURATION)
        self.process = subprocess.Popen(
            ["ganesha.nfsd", "-F", "-f", "/tmp/ganesha.conf", "-L", "/tmp/ganesha.log",
             "-p", "/tmp/ganesha.pid", "-N", "NIV_EVENT"]
        )

        def ready():
            if self.process.poll() is not None:
                sys.exit(f"Ganesha ended: {read('/tmp/ganesha.log').decode()[-3000:]}")
            return answers(2049)

        await_("Ganesha answers", ready)

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            sys.exit("Ganesha does not end within 60 s")

    def crash(self):
        self.process.kill()
        self.process.wait()


class Kernel:
    """Its handles have the number that `fsid=` gives, so the volume may get another device. (0 is the root
    of NFS 4; other numbers need a root that can be exported, which the guest's is not.)"""

    any_device = True

    def __init__(self, version):
        self.version, self.name = version, f"the kernel's server, NFS {version}"
        self.source, self.type, self.options = "127.0.0.1:/", "nfs4", "clientaddr=127.0.0.1"
        self.mountd = False

    def start(self):
        with open("/etc/exports", "w") as file:
            file.write(f"{MOUNT} 127.0.0.1(rw,sync,fsid=0,no_root_squash,insecure,no_subtree_check)\n")
        for setting in ("nfsv4leasetime", "nfsv4gracetime"):
            with open(f"/proc/fs/nfsd/{setting}", "w") as file:
                file.write(f"{LEASE_SECONDS}\n")
        if not self.mountd:
            run("rpc.mountd", "-N", "2", "-N", "3")
            self.mountd = True
        run("exportfs", "-a")
        run("rpc.nfsd", "-N", "3", "4")
        await_("the kernel's server answers", lambda: answers(2049))

    def end(self):
        run("rpc.nfsd", "0")
        run("exportfs", "-ua")
        run("exportfs", "-f")

    crash = end


class Volume:
    def __init__(self, engine):
        self.path = f"/tmp/volume-{engine}"
        pando("format", "--engine", engine, self.path)

    def mount(self):
        # NFS promises that a change is durable when it is answered; Ganesha does not sync directories.
        pando("mount", "-o", "sync", self.path, MOUNT)
        self.device = os.stat(MOUNT).st_dev

    def unmount(self):
        pando("umount", MOUNT)

    def crash(self):
        for number in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{number}/exe") == os.path.realpath(PANDO):
                    os.kill(int(number), signal.SIGKILL)
        run("umount", MOUNT)


def calls(version):
    """Calls over NFS, each compared with what the mount shows; and the other way round."""
    there, here = f"{NFS}/calls", f"{MOUNT}/calls"
    os.mkdir(there)
    write(f"{there}/a", b"first")
    check("contents", read(f"{here}/a") == b"first")
    with open(f"{there}/a", "ab") as file:
        file.write(b" and second")
    os.rename(f"{there}/a", f"{there}/b")
    check("renamed", os.listdir(here) == ["b"] and read(f"{here}/b") == b"first and second")
    write(f"{there}/a", b"third")
    os.rename(f"{there}/a", f"{there}/b")
    check("replaced", os.listdir(here) == ["b"] and read(f"{here}/b") == b"third")
    os.truncate(f"{there}/b", 2)
    os.chmod(f"{there}/b", 0o640)
    os.chown(f"{there}/b", 12, 34)
    os.utime(f"{there}/b", ns=(10**18, 10**18 + 1))
    status = os.stat(f"{here}/b")
    found = (status.st_size, status.st_mode & 0o7777, status.st_uid, status.st_gid, status.st_mtime_ns)
    check(f"attributes: {found}", found == (2, 0o640, 12, 34, 10**18 + 1))
    check("inode numbers", os.stat(f"{there}/b").st_ino == status.st_ino)
    os.link(f"{there}/b", f"{there}/c")
    check("two names", os.stat(f"{here}/c").st_nlink == 2)
    os.unlink(f"{there}/b")
    check("one name", os.listdir(here) == ["c"] and os.stat(f"{here}/c").st_nlink == 1)
    os.symlink("c", f"{there}/link")
    check("a symbolic link", os.readlink(f"{here}/link") == "c")
    os.mkdir(f"{there}/directory")
    os.rename(f"{there}/directory", f"{there}/moved")
    os.rmdir(f"{there}/moved")
    check("what is left", sorted(os.listdir(here)) == ["c", "link"])
    # As another user: the server acts with the rights of the caller.
    os.mkdir(f"{there}/all")
    os.chmod(f"{there}/all", 0o777)
    os.seteuid(65534)
    write(f"{there}/all/own", b"own")
    try:
        write(f"{there}/refused", b"")
        sys.exit("export: nobody creates in root's directory")
    except PermissionError:
        pass
    os.seteuid(0)
    check("its owner", os.stat(f"{here}/all/own").st_uid == 65534)
    large = random.Random(1).randbytes(8 << 20)
    write(f"{there}/large", large)
    os.mkdir(f"{MOUNT}/made")
    write(f"{MOUNT}/made/large", large[::-1])
    want = hashlib.sha256(large[::-1]).digest()
    check("what the mount wrote", hashlib.sha256(read(f"{NFS}/made/large")).digest() == want)
    write(f"{MOUNT}/made/large", b"short")
    check("what the mount changed", read(f"{NFS}/made/large") == b"short")
    os.unlink(f"{MOUNT}/made/large")
    check("what the mount removed", os.listdir(f"{NFS}/made") == [])
    pando("snapshot", "create", here, "before")
    os.truncate(f"{there}/c", 0)
    for top in (here, there):
        check(f"a snapshot at {top}", read(f"{top}/.snapshots/before/c") == b"th")
    forget()
    want = hashlib.sha256(large).digest()
    for path in (f"{here}/large", f"{there}/large"):
        check(f"contents of {path}", hashlib.sha256(read(path)).digest() == want)
    if version != "3":
        with open(f"{there}/c", "r+b") as over_nfs, open(f"{here}/c", "r+b") as at_mount:
            fcntl.lockf(over_nfs, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                fcntl.lockf(at_mount, fcntl.LOCK_EX | fcntl.LOCK_NB)
                sys.exit("export: a lock over NFS excludes nobody at the mount")
            except BlockingIOError:
                pass


def contents(number):
    return b"%d," % number * (20000 if number % 100 == 0 else 3)


class Handles:
    """A directory of files, half made over NFS and half at the mount; handles of some of both."""

    def __init__(self):
        os.mkdir(f"{NFS}/many")
        for number in range(FILES):
            write(f"{NFS if number % 2 else MOUNT}/many/f{number}", contents(number))
        for number in range(10):
            os.makedirs(f"{NFS}/tree/d{number}/below")
            write(f"{NFS}/tree/d{number}/below/file", contents(number))
        listed = os.listdir(f"{NFS}/many")
        check(f"a listing of {len(listed)}", sorted(listed) == sorted(os.listdir(f"{MOUNT}/many")))
        check("each name once", len(listed) == len(set(listed)) == FILES)
        self.files = {number: handle(f"{NFS}/many/f{number}") for number in PICKED}
        self.directories = {number: handle(f"{NFS}/tree/d{number}/below") for number in range(10)}
        self.linked = handle(f"{NFS}/calls/c")
        self.removed = handle(f"{NFS}/many/f1")
        write(f"{NFS}/held", b"0" * 100)
        self.held = os.open(f"{NFS}/held", os.O_RDWR)
        self.rounds = 0

    def again(self, what):
        """All handles open, and what they open reads as it was written."""
        begun = time.monotonic()
        forget()
        for number, own in self.files.items():
            try:
                with opened(own) as fd:
                    length, want = os.fstat(fd).st_size, contents(number)
                    check(f"{what}: length of {number}", length == len(want))
                    check(f"{what}: contents of {number}", os.pread(fd, length + 1, 0) == want)
            except OSError as error:
                sys.exit(f"export: {what}: handle of file {number}: {error}")
        for number, own in self.directories.items():
            try:
                with opened(own) as fd:
                    check(f"{what}: directory {number}", os.listdir(fd) == ["file"])
            except OSError as error:
                sys.exit(f"export: {what}: handle of directory {number}: {error}")
        with opened(self.linked, os.O_WRONLY) as fd:
            os.write(fd, b"%02d" % self.rounds)
        check(f"{what}: written by handle", read(f"{MOUNT}/calls/c") == b"%02d" % self.rounds)
        # What has been open from the start.
        before, data = b"%d" % max(self.rounds - 1, 0) * 100, b"%d" % self.rounds * 100
        check(f"{what}: of an open file", os.pread(self.held, 200, 0) == before)
        os.pwrite(self.held, data, 0)
        os.fsync(self.held)
        check(f"{what}: written to an open file", read(f"{MOUNT}/held") == data)
        self.rounds += 1
        print(f"  {what}: {len(PICKED) + 12} handles opened in {time.monotonic() - begun:.1f} s", flush=True)

    def stale(self):
        os.unlink(f"{MOUNT}/many/f1")
        forget()
        try:
            with opened(self.removed) as fd:
                os.pread(fd, 1, 0)
            sys.exit("export: a removed file opens by its handle")
        except OSError as error:
            check(f"a removed file: {error}", error.errno == errno.ESTALE)


def export(engine, server):
    volume = Volume(engine)
    volume.mount()
    device = volume.device
    server.start()
    options = f"vers={server.version},{CLIENT},{server.options}"
    run("mount", "-i", "-t", server.type, "-o", options, server.source, NFS)
    calls(server.version)
    handles = Handles()
    handles.again("caches dropped")

    server.end()
    volume.unmount()
    if server.any_device:
        # Something else takes the number.
        os.makedirs("/tmp/other", exist_ok=True)
        run("mount", "-t", "tmpfs", "tmpfs", "/tmp/other")
    volume.mount()
    check("the same device", (volume.device == device) != server.any_device)
    server.start()
    handles.again("mounted again" + (", another device" if server.any_device else ""))

    os.mkdir(f"{NFS}/last")
    server.crash()
    volume.crash()
    volume.mount()
    server.start()
    handles.again("after a crash" if server.any_device else "after a crash of both")
    check("a directory made just before", os.path.isdir(f"{MOUNT}/last"))
    handles.stale()

    os.close(handles.held)
    run("umount", NFS)
    server.end()
    volume.unmount()
    if server.any_device:
        run("umount", "/tmp/other")
    print("  fsck:", pando("fsck", volume.path).strip().split("\n")[-1])
    run("rm", "-r", volume.path)


def main():
    kernel = Kernel("4.2")
    for engine in ("btree", "lsm"):
        for server in (Ganesha("4.2"), Ganesha("3"), kernel):
            begun = time.monotonic()
            print(f"== {engine}: {server.name}", flush=True)
            export(engine, server)
            print(f"   passed in {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
