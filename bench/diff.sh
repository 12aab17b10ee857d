#!/bin/sh
# Times `pando diff` of 1,000 changes among many files: warm, with caches dropped, after a merge of runs
# between the two states, after another tree was imported there, and with a snapshot that was pruned.
#
#   bench/diff.sh [FILES] [PANDO] [ENGINE...]      FILES: 1000000; PANDO: target/release/pando; both engines
#
# The tree is made from a list, and snapshotted; then 1,000 files that are spread over all directories
# get another mode through a mount. Then the same files get other modes, and the volume is mounted again,
# which makes a run of `lsm` each time, until runs were merged (`merges`, as `pando status` counts them;
# if none is, the script fails; btree has no runs, and does the same five times). Two trees of as many files
# are beside the first; they are removed before
# the last rows, by which the snapshot is pruned: it shares nothing with the present any more, and
# the directory is compared entry by entry. Times are of the whole command: least and median of nine,
# cold of three, for each of which the volume is mounted again and the page cache dropped; `status`, which
# does nothing, is beside them. One JSON line a row. Needs root.
set -eu

files=${1:-1000000}
pando=$(realpath "${2:-target/release/pando}")
if [ $# -ge 3 ]; then shift 2; else set -- btree lsm; fi
work=$(mktemp -d "${TMPDIR:-/tmp}/pando-diff.XXXXXX")
end() {
    for engine in btree lsm; do
        "$pando" umount "$work/mnt-$engine" >/dev/null 2>&1 || true
    done
    rm -rf "$work"
}
trap end EXIT

for engine in "$@"; do
    mkdir "$work/mnt-$engine"
    "$pando" format --engine "$engine" "$work/$engine" >/dev/null
    "$pando" mount "$work/$engine" "$work/mnt-$engine" >/dev/null
    python3 - "$engine" "$files" "$work" "$pando" <<'END'
import json, os, statistics, subprocess, sys, time
engine, files, work, pando = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
mount, volume = f"{work}/mnt-{engine}", f"{work}/{engine}"
directories = max(files // 1000, 1)


def run(*words):
    return subprocess.run([pando, "-q", *words], check=True, capture_output=True).stdout


def timed(*words):
    begun = time.monotonic()
    out = run(*words)
    return (time.monotonic() - begun) * 1000, out


def fill(name):
    listed = subprocess.Popen([pando, "-q", "import", "--format", "list", "-", f"{mount}/{name}"],
                              stdin=subprocess.PIPE)
    for directory in range(directories):
        lines = [f'{{"path":"d{directory}","kind":"d","mode":"0755"}}\n']
        lines += [f'{{"path":"d{directory}/file-{file}","kind":"f","mode":"0644","uid":0,"gid":0,"size":0,'
                  f'"mtime":1700000000}}\n' for file in range(min(files, 1000))]
        listed.stdin.write("".join(lines).encode())
    listed.stdin.close()
    if listed.wait() != 0:
        sys.exit("the import failed")


def wait_until_idle():
    while not json.loads(run("status", "--json", mount))["background"]["idle"]:
        time.sleep(0.2)


def report(what, times, **more):
    times.sort()
    print(json.dumps({"bench": "diff", "engine": engine, "files": files, "what": what,
                      "least_ms": round(times[0], 1), "median_ms": round(statistics.median(times), 1), **more}),
          flush=True)


def merges():
    """How many merges of runs ended since the volume was mounted; none in an engine that merges none."""
    counted = json.loads(run("status", "--json", mount))["merges"]
    return None if counted is None else counted["ended"]


def change(mode):
    for file in range(1000):
        os.chmod(f"{mount}/t/d{file % directories}/file-{file % min(files, 1000)}", mode)


def merge():
    """Has runs merged that were written since the snapshot."""
    for each in range(5 if merges() is None else 40):
        change(0o640 if each % 2 == 0 else 0o600)
        run("umount", mount)
        run("mount", volume, mount)
        wait_until_idle()
        if merges():
            return merges()
    if merges() is None:
        return None
    sys.exit("no runs were merged between the two states")


def diff(what, drop=False, **more):
    times = []
    for each in range(3 if drop else 9):
        if drop:
            run("umount", mount)
            os.sync()
            with open("/proc/sys/vm/drop_caches", "w") as caches:
                caches.write("3")
            run("mount", volume, mount)
        took, out = timed("diff", "--stat", "--json", f"{mount}/t@s", f"{mount}/t")
        times.append(took)
    found = json.loads(out)
    report(what, times, modified=found["modified"], **more)


fill("t")
fill("beside")
fill("more")
wait_until_idle()
run("snapshot", "create", f"{mount}/t", "s")
change(0o600)
report("status", [timed("status", mount)[0] for each in range(9)])
diff("warm")
diff("cold", drop=True)
merged = merge()
diff("warm, runs merged between", merges=merged)
diff("cold, runs merged between", drop=True, merges=merged)
fill("later")
wait_until_idle()
merged = merges()
diff("warm, another tree imported between", merges=merged)
diff("cold, another tree imported between", drop=True, merges=merged)
run("rmr", "--wait", f"{mount}/beside")
run("rmr", "--wait", f"{mount}/more")
wait_until_idle()
diff("warm, snapshot pruned")
diff("cold, snapshot pruned", drop=True)
END
    "$pando" umount "$work/mnt-$engine" >/dev/null
done
