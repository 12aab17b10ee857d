#!/bin/sh
# Clone, rollback and removal of a large directory as commands, how fast its records are reclaimed,
# and how long a program beside that waits: one JSON line a figure.
#
#   bench/scale.sh [FILES] [PANDO] [ENGINE]     FILES: 10000000; PANDO: target/release/pando; ENGINE: btree
#
# The directory has empty files in directories of 1,000, made from a list. Times of commands are of the
# whole command with its start, least and median of nine; `pando status` is beside them, which does
# nothing. A clone that is removed shares all of its records. Of the directory itself the records are
# reclaimed: the rate is of files and directories. Beside it a program makes and removes a file through
# the mount; `p99_ms` of both calls together is compared with the time before. Rollbacks are of another
# directory of as many files, because one that was rolled back is a tree of its own, which is dropped
# as a whole. Needs root, or fusermount3.
set -eu

files=${1:-10000000}
pando=$(realpath "${2:-target/release/pando}")
engine=${3:-btree}
work=$(mktemp -d "${TMPDIR:-/tmp}/pando-scale.XXXXXX")
end() {
    "$pando" umount "$work/mnt" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap end EXIT

mkdir "$work/mnt"
"$pando" format --engine "$engine" "$work/vol" >/dev/null
"$pando" mount "$work/vol" "$work/mnt"

python3 - "$work/mnt" "$files" "$pando" "$engine" <<'END'
import json, os, statistics, subprocess, sys, threading, time
mount, files, pando, engine = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
directories = max(files // 1000, 1)


def report(what, **figures):
    print(json.dumps({"bench": "scale", "engine": engine, "files": files, "what": what, **figures}), flush=True)


def command(*words):
    begun = time.monotonic()
    subprocess.run([pando, "-q", *words], check=True, stdout=subprocess.DEVNULL)
    return (time.monotonic() - begun) * 1000


def status():
    done = subprocess.run([pando, "status", "--json", mount], check=True, capture_output=True)
    return json.loads(done.stdout)


def wait_until_idle():
    while not status()["background"]["idle"]:
        time.sleep(0.1)


def commands(what, each):
    times = sorted(each(run) for run in range(9))
    report(what, least_ms=round(times[0], 1), median_ms=round(statistics.median(times), 1))


def fill(name):
    begun = time.monotonic()
    listed = subprocess.Popen([pando, "-q", "import", "--format", "list", "-", f"{mount}/{name}"], stdin=subprocess.PIPE)
    for directory in range(directories):
        lines = [f'{{"path":"d{directory}","kind":"d","mode":"0755"}}\n']
        lines += [f'{{"path":"d{directory}/file-{file}","kind":"f","mode":"0644","uid":0,"gid":0,"size":0,'
                  f'"mtime":1700000000}}\n' for file in range(min(files, 1000))]
        listed.stdin.write("".join(lines).encode())
    listed.stdin.close()
    if listed.wait() != 0:
        sys.exit("the import failed")
    seconds = time.monotonic() - begun
    report("import", seconds=round(seconds, 2), files_per_second=round(files / seconds))


class Beside(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.waits, self.ended = [], False

    def run(self):
        path = mount + "/beside"
        while not self.ended:
            begun = time.monotonic()
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
            os.unlink(path)
            self.waits.append((begun, (time.monotonic() - begun) * 1000))
            time.sleep(0.0005)

    def of(self, since, until):
        waits = sorted(wait for begun, wait in self.waits if since <= begun < until)
        at = lambda share: round(waits[min(int(len(waits) * share), len(waits) - 1)], 3) if waits else None
        return {"calls": len(waits), "median_ms": at(0.5), "p99_ms": at(0.99), "most_ms": at(1)}


fill("t")
wait_until_idle()
commands("status", lambda run: command("status", mount))
commands("clone", lambda run: command("clone", mount + "/t", f"{mount}/c{run}"))
commands("rmr of a clone", lambda run: command("rmr", f"{mount}/c{run}"))
wait_until_idle()

beside = Beside()
beside.start()
begun = time.monotonic()
time.sleep(5)
removed = time.monotonic()
detached = command("rmr", mount + "/t")
gone = time.monotonic()
wait_until_idle()
ended = time.monotonic()
beside.ended = True
beside.join()
report("rmr", ms=round(detached, 1), reclaim_seconds=round(ended - gone, 2),
       reclaimed_per_second=round((files + directories) / (ended - gone)))
report("beside", before=beside.of(begun, removed), during=beside.of(removed, ended))

fill("r")
wait_until_idle()
command("snapshot", "create", mount + "/r", "s")


def roll_back(run):
    os.chmod(f"{mount}/r/d{run % directories}", 0o700)
    return command("rollback", mount + "/r", "s")


commands("rollback", roll_back)
END
