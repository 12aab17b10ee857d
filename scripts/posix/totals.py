#!/usr/bin/env python3
"""Totals of directories as extended attributes, beside a walk (run by programs.sh).

    totals.py DIRECTORY PANDO      a directory of a mounted volume

`user.pando.rbytes`, `rfiles`, `rsubdirs` and `rctime` of each directory of a tree that changes at
random must be what the same user finds by walking there: as root, who sees all, and as others, whom
some of it is closed to. An ordinary user closes its own.
"""
import errno
import os
import pwd
import random
import stat
import subprocess
import sys

ROOT = os.getuid() == 0
NAMES = ("rbytes", "rfiles", "rsubdirs", "rctime")
done = 0


def check(what, truth):
    global done
    done += 1
    if not truth:
        sys.exit(f"totals: {what}")


def fails(number, what, act):
    try:
        act()
    except OSError as error:
        check(f"{what}: {errno.errorcode[error.errno]}", error.errno == number)
        return
    check(f"{what}: no error", False)


def total(path, name):
    return os.getxattr(path, f"user.pando.{name}").decode()


def walk(top):
    """What a user sees below: what can be looked at, in directories that can be listed."""
    seen, size, files, directories, latest = set(), 0, 0, 0, os.stat(top).st_ctime_ns
    todo = [top]
    while todo:
        place = todo.pop()
        try:
            names = os.listdir(place)
        except PermissionError:
            continue
        for name in names:
            try:
                s = os.lstat(f"{place}/{name}")
            except PermissionError:
                continue
            if stat.S_ISDIR(s.st_mode):
                directories += 1
                todo.append(f"{place}/{name}")
            elif (s.st_dev, s.st_ino) not in seen:
                files += 1
                size += s.st_size
                seen.add((s.st_dev, s.st_ino))
            latest = max(latest, s.st_ctime_ns)
    return [str(size), str(files), str(directories), f"{latest // 10**9}.{latest % 10**9:09}"]


def everywhere(top):
    """The directories that a user can reach."""
    found = [top]
    for place in found:
        try:
            names = os.listdir(place)
        except PermissionError:
            continue
        for name in names:
            try:
                if stat.S_ISDIR(os.lstat(f"{place}/{name}").st_mode):
                    found.append(f"{place}/{name}")
            except PermissionError:
                pass
    return found


def compare(top, who):
    places = everywhere(top)
    for place in places:
        if not os.access(place, os.R_OK):
            # Like any attribute that begins with `user.`.
            fails(errno.EACCES, f"{place} as {who}", lambda: total(place, NAMES[0]))
            continue
        given, found = [total(place, name) for name in NAMES], walk(place)
        check(f"{place} as {who}: it has {given}, a walk finds {found}", given == found)
    return len(places)


def as_user(uid, gid, act):
    """In a child with the rights of a user: whether it ends well."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            act()
            code = 0
        except (SystemExit, OSError) as error:
            print(error, file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    check(f"as the user {uid}", os.waitpid(child, 0)[1] == 0)


class Tree:
    """Directories and files that change at random, and all that a name can point to."""

    def __init__(self, seed):
        self.random, self.names = random.Random(seed), 0
        self.directories, self.files = ["tree"], []
        os.mkdir("tree", 0o755)

    def across(self, act, old, new):
        """A second name, but for one in another subvolume."""
        try:
            act(old, new)
        except OSError as error:
            check(f"{old} to {new}: {error}", error.errno == errno.EXDEV)
            return False
        self.files.append(new)
        return True

    def step(self):
        self.names += 1
        place = self.random.choice(self.directories)
        path = f"{place}/{self.names}"
        call = self.random.choice(
            ("mkdir", "file", "file", "grow", "cut", "sparse", "link", "symlink", "fifo", "rename",
             "unlink", "mode", "owner"))
        if call == "mkdir":
            os.mkdir(path, 0o755)
            self.directories.append(path)
        elif call == "file" or not self.files:
            with open(path, "wb") as file:
                file.write(bytes(self.random.randrange(20000)))
            self.files.append(path)
        elif call in ("grow", "cut", "sparse"):
            most = {"grow": 300_000, "cut": 10, "sparse": 1 << 41}[call]
            os.truncate(self.random.choice(self.files), self.random.randrange(most))
        elif call == "link":
            self.across(os.link, self.random.choice(self.files), path)
        elif call == "symlink":
            os.symlink("x" * self.random.randrange(1, 90), path)
        elif call == "fifo":
            os.mkfifo(path)
        elif call == "rename":
            old = self.random.choice(self.files)
            if self.across(os.rename, old, path):
                self.files.remove(old)
        elif call == "unlink":
            gone = self.random.choice(self.files)
            os.unlink(gone)
            self.files.remove(gone)
        elif call == "mode" and ROOT and place != "tree":
            os.chmod(place, self.random.choice((0o755, 0o700, 0o711, 0o744, 0o750)))
        elif call == "owner" and ROOT:
            os.chown(self.random.choice(self.directories[1:] + self.files),
                     self.random.choice((0, 1000, 65534)), self.random.choice((0, 1000)))


def closed():
    """What an ordinary user has closed to itself."""
    for mode in (0o700, 0o500, 0o300, 0o100, 0o400, 0o600, 0):
        path = f"tree/closed-{mode:o}"
        os.makedirs(f"{path}/below")
        for name in ("f", "below/g"):
            with open(f"{path}/{name}", "w") as file:
                file.write(name * 100)
        os.chmod(path, mode)
    compare("tree", "its owner")
    for mode in (0o700, 0o500, 0o300, 0o100, 0o400, 0o600, 0):
        os.chmod(f"tree/closed-{mode:o}", 0o700)


def main():
    os.umask(0o022)
    os.mkdir(os.path.join(sys.argv[1], "totals"))
    os.chdir(os.path.join(sys.argv[1], "totals"))
    tree, places = Tree(1), 0
    nobody = pwd.getpwnam("nobody")
    for turn in range(12):
        for _ in range(40):
            tree.step()
        places += compare("tree", "its maker")
        if ROOT:
            for uid, gid in ((nobody.pw_uid, nobody.pw_gid), (1000, 1000), (2000, 0)):
                as_user(uid, gid, lambda: compare("tree", f"the user {uid}"))
        if turn % 4 == 1:
            # A subvolume within the tree, in which other processes change files from here on.
            path = f"tree/clone-{turn}"
            clone = [sys.argv[2], "--quiet", "clone", tree.directories[turn], path]
            subprocess.run(clone, check=True, stdout=subprocess.DEVNULL)
            tree.directories.append(path)
        if turn % 4 == 3:
            os.mkdir(f"tree/.snapshots/{turn}")
            before = [total(f"tree/.snapshots/{turn}", name) for name in NAMES[:3]]
            check("a snapshot has what was there", before == [total("tree", n) for n in NAMES[:3]])
            places += compare(f"tree/.snapshots/{turn}", "a reader of a snapshot")
    if not ROOT:
        closed()
    for name in NAMES:
        check(f"{name} is not listed", f"user.pando.{name}" not in os.listxattr("tree"))
        for path in tree.files[:1]:
            fails(errno.ENODATA, f"{name} of a file", lambda: total(path, name))
    print(f"totals: {done} checks, of {places} directories by the user that made them")


main()
