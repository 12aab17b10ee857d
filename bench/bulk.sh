#!/bin/sh
# Times bulk operations beside tar and cp on the file system of TMPDIR, both sides ending in a sync:
# one JSON line a measurement.
#
#   bench/bulk.sh [FILES] [PANDO] [ENGINE]     FILES: 70000; PANDO: target/release/pando; ENGINE: btree
#
# The tree is like a kernel's: 15 files a directory, of 0 to 64 KiB, mostly small. Caches are dropped
# before `cold` runs, which needs root. A line has the least of three runs; `names` is what was
# imported or exported. Names with `list` have no contents. Each result is removed before the next.
set -eu

files=${1:-70000}
pando=$(realpath "${2:-target/release/pando}")
engine=${3:-btree}
work=$(mktemp -d "${TMPDIR:-/tmp}/pando-bulk.XXXXXX")
end() {
    "$pando" umount "$work/vol" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap end EXIT

python3 - "$work/tree" "$files" <<'END'
import os, random, sys
top, files = sys.argv[1], int(sys.argv[2])
random.seed(7)
noise = random.randbytes(1 << 20)
for number in range(files):
    directory = f"{top}/{number // 1500}/{number // 15 % 100}"
    if number % 15 == 0:
        os.makedirs(directory, exist_ok=True)
    length = min(int(random.expovariate(1 / 8000)), 65536)
    at = random.randrange(len(noise) - length)
    with open(f"{directory}/file-{number}.c", "wb") as file:
        file.write(noise[at:at + length])
END
sync
tar -C "$work/tree" --format=pax -cf "$work/tree.tar" .
find "$work/tree" -printf '%y %#m %U %G %s %T@ %A@ %n %D:%i %P\0%l\0' > "$work/tree.list"
"$pando" format --engine "$engine" "$work/vol" >/dev/null
export PANDO_IDLE_SECONDS=600

python3 - "$work" "$files" "$pando" "$engine" <<'END'
import json, os, subprocess, sys, time
work, files, pando, engine = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
os.chdir(work)
vol = f"{work}/vol"
root = os.geteuid() == 0

def run(command):
    subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL)

def measure(what, command, after, cold=False, runs=3):
    if cold and not root:
        return
    times = []
    for _ in range(runs):
        os.sync()
        if cold:
            run("echo 3 > /proc/sys/vm/drop_caches")
            run(f"{pando} status {vol}")
        begun = time.monotonic()
        run(command)
        times.append(time.monotonic() - begun)
        run(after)
    best = min(times)
    print(json.dumps({"bench": "bulk", "what": what, "engine": engine, "files": files,
                      "cold": cold, "seconds": round(best, 3), "all": [round(t, 3) for t in times],
                      "files_a_second": round(files / best)}), flush=True)

p = f"{pando} -q"
gone = f"{pando} rmr --wait -q {vol}:/t"
for cold in (False, True):
    measure("read the tree: tar cf - | cat", "tar -C tree -cf - . | cat > /dev/null", "true", cold)
    measure("cp -a, sync", "cp -a tree copy && sync -f copy", "rm -rf copy", cold)
    measure("pando import DIR", f"{p} import tree {vol}:/t", gone, cold)
    measure("tar x, sync", "mkdir copy && tar -C copy -xf tree.tar && sync -f copy",
            "rm -rf copy", cold)
    measure("pando import TAR", f"{p} import --format tar tree.tar {vol}:/t", gone, cold)
measure("pando import LIST", f"{p} import --format list tree.list {vol}:/t", gone)
run(f"{p} import tree {vol}:/t")
for cold in (False, True):
    measure("tar c, sync", "tar -C tree -cf out.tar . && sync out.tar", "rm out.tar", cold)
    measure("pando export TAR", f"{p} export --format tar {vol}:/t out.tar", "rm out.tar", cold)
    measure("pando export DIR", f"{p} export {vol}:/t copy", "rm -rf copy", cold)
END
