#!/usr/bin/env python3
"""Access control lists beside ext4: the same random calls by the same users on both file systems
must end alike and leave the same modes and lists (run by acl.sh).

    acl.py DIRECTORY REFERENCE SEED ROUNDS     two empty directories, as root
"""
import errno
import os
import random
import stat
import struct
import sys

ours, reference, seed, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rng = random.Random(seed)
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
USERS = [(0, 0, []), (3001, 3101, []), (3002, 3102, [3101, 3103]), (3003, 3103, [])]
NOBODY = 0xFFFFFFFF


def a_list():
    """A list's bytes: most often a valid one."""
    def some(ids):
        return [(i, rng.randrange(8)) for i in ids if rng.random() < 0.4]
    users, groups = some([3001, 3002, 3003, 5]), some([3101, 3102, 3103, 6])
    entries = [(1, rng.randrange(8), NOBODY)]
    entries += [(2, p, i) for i, p in users]
    entries += [(4, rng.randrange(8), NOBODY)]
    entries += [(8, p, i) for i, p in groups]
    if users or groups or rng.random() < 0.3:
        entries.append((16, rng.randrange(8), NOBODY))
    entries.append((32, rng.randrange(8), NOBODY))
    version = 2
    if rng.random() < 0.15:
        broken = rng.randrange(5)
        if broken == 0:
            del entries[rng.randrange(len(entries))]
        elif broken == 1:
            entries.insert(rng.randrange(len(entries)), rng.choice(entries))
        elif broken == 2:
            version = rng.randrange(4)
        elif broken == 3:
            entries = []
        else:
            at = rng.randrange(len(entries))
            entries[at] = (rng.choice([1, 2, 4, 8, 16, 32, 64, 3]), rng.randrange(10), entries[at][2])
    raw = struct.pack("<I", version) + b"".join(struct.pack("<HHI", *e) for e in entries)
    return raw[:-rng.randrange(1, 8)] if rng.random() < 0.03 else raw


def create(path, mode):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))


def unnamed(directory, name, mode):
    fd = os.open(directory, os.O_TMPFILE | os.O_WRONLY, mode)
    try:
        os.link(f"/proc/self/fd/{fd}", f"{directory}/{name}", follow_symlinks=True)
    finally:
        os.close(fd)


def opened(path, flags):
    os.close(os.open(path, flags))


DIRECTORIES = ["d0", "d1", "d0/s0", "d0/s1", "d1/s0"]
NAMES = ["a", "b", "s0", "s1"]


def directory():
    return rng.choice(DIRECTORIES)


def path():
    return f"{directory()}/{rng.choice(NAMES)}" if rng.random() < 0.8 else directory()


def step():
    """One call: what it is called, and how to make it below a directory."""
    mode = rng.choice([0o777, 0o666, 0o640, 0o700, 0o2775, 0o600, rng.randrange(0o10000)])
    at, to, value = path(), path(), a_list()
    acl, flags = rng.choice([ACCESS, ACCESS, DEFAULT]), rng.choice([os.O_RDONLY, os.O_WRONLY, os.O_RDWR])
    name = rng.choice(NAMES)
    within = directory()
    kinds = [
        (6, "create", lambda r: create(f"{r}/{at}", mode & 0o7777)),
        (4, "mkdir", lambda r: os.mkdir(f"{r}/{at}", mode & 0o1777)),
        (2, "fifo", lambda r: os.mkfifo(f"{r}/{at}", mode & 0o777)),
        (2, "symlink", lambda r: os.symlink("a", f"{r}/{at}")),
        (2, "unnamed", lambda r: unnamed(f"{r}/{within}", name, mode & 0o777)),
        (4, "chmod", lambda r: os.chmod(f"{r}/{at}", mode)),
        (8, f"set {acl}", lambda r: os.setxattr(f"{r}/{at}", acl, value, follow_symlinks=False)),
        (2, f"remove {acl}", lambda r: os.removexattr(f"{r}/{at}", acl, follow_symlinks=False)),
        (3, f"get {acl}", lambda r: os.getxattr(f"{r}/{at}", acl, follow_symlinks=False)),
        (6, "open", lambda r: opened(f"{r}/{at}", flags | os.O_NONBLOCK | os.O_NOFOLLOW)),
        (3, "list", lambda r: sorted(os.listdir(f"{r}/{within}"))),
        (2, "access", lambda r: os.access(f"{r}/{at}", mode & 7, effective_ids=True)),
        (2, "stat", lambda r: shown(f"{r}/{at}")),
        (3, "unlink", lambda r: os.unlink(f"{r}/{at}")),
        (1, "rmdir", lambda r: os.rmdir(f"{r}/{at}")),
        (2, "rename", lambda r: os.rename(f"{r}/{at}", f"{r}/{to}")),
        (2, "truncate", lambda r: os.truncate(f"{r}/{at}", 3)),
        (1, "utime", lambda r: os.utime(f"{r}/{at}")),
    ]
    total = sum(weight for weight, _, _ in kinds)
    pick = rng.randrange(total)
    for weight, what, act in kinds:
        pick -= weight
        if pick < 0:
            return f"{what} {at} {to if what == 'rename' else ''} in {within} name {name} mode {mode:o}" \
                   f" flags {flags} value {value.hex()}", act
    raise AssertionError


def shown(path):
    """What anybody sees of a name, but for what differs between file systems."""
    found = os.lstat(path)
    lists = {}
    for name in os.listxattr(path, follow_symlinks=False):
        if name.startswith("system."):
            lists[name] = os.getxattr(path, name, follow_symlinks=False).hex()
    size = found.st_size if stat.S_ISREG(found.st_mode) else 0
    mode = found.st_mode
    # On ext4, a user who truncates a file without being in its group ends its set-group-id bit.
    # FUSE ends it only if the group may execute the file: otherwise the bit grants no right.
    if stat.S_ISREG(mode) and not mode & 0o010:
        mode &= ~stat.S_ISGID
    return (oct(mode), found.st_uid, found.st_gid, size, sorted(lists.items()))


def as_user(user, umask, act, root):
    """Makes a call as somebody and returns how it ended."""
    uid, gid, groups = user
    os.setgroups(groups)
    os.setegid(gid)
    os.seteuid(uid)
    before = os.umask(umask)
    try:
        return ("done", act(root))
    except OSError as error:
        return ("refused", errno.errorcode[error.errno])
    finally:
        os.umask(before)
        os.seteuid(0)
        os.setegid(0)
        os.setgroups([])


def tree(root):
    found = {}
    for at, directories, files in os.walk(root):
        for name in directories + files:
            path = os.path.join(at, name)
            found[os.path.relpath(path, root)] = shown(path)
    return found


for root in (ours, reference):
    os.chmod(root, 0o777)
    for name in DIRECTORIES[:2]:
        os.mkdir(f"{root}/{name}")
        os.chmod(f"{root}/{name}", 0o777)
print(f"acl: seed {seed}, {rounds} calls", flush=True)
ends, calls = {}, []
for number in range(rounds):
    what, act = step()
    user, umask = rng.choice(USERS), rng.choice([0o022, 0o077, 0, 0o027])
    calls.append(f"{number} {user} umask {umask:o}: {what}")
    got, want = (as_user(user, umask, act, root) for root in (ours, reference))
    ends[want[1] if want[0] == "refused" else "done"] = ends.get(want[1] if want[0] == "refused" else "done", 0) + 1
    if got != want:
        sys.exit(f"acl: call {number}, seed {seed}: {user} umask {umask:o}: {what}\n  got  {got}\n  ext4 {want}")
    if number % 40 == 39:
        # Lists and modes that deny everybody soon become the rule: allow access again.
        for root in (ours, reference):
            for name in DIRECTORIES:
                if os.path.isdir(f"{root}/{name}"):
                    os.chmod(f"{root}/{name}", 0o777)
    if number % 50 == 49 or number == rounds - 1:
        mine, theirs = tree(ours), tree(reference)
        if mine != theirs:
            for name in sorted(set(mine) | set(theirs)):
                if mine.get(name) != theirs.get(name):
                    print(f"  {name}\n    got  {mine.get(name)}\n    ext4 {theirs.get(name)}")
                    print("\n".join(call for call in calls[-300:] if f" {name} " in call))
            sys.exit(f"acl: after call {number}, seed {seed}: the trees differ")
if ends.get("done", 0) < rounds // 5 or ends.get("EACCES", 0) < rounds // 50:
    sys.exit(f"acl: too little of each end was seen: {ends}")
print(f"acl: alike on both: {dict(sorted(ends.items()))}")
