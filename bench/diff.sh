#!/bin/sh
# Times `pando diff` of 1,000 changes among many files, on each engine, warm: one JSON line an engine.
#
#   bench/diff.sh [FILES] [PANDO]      FILES: 1000000; PANDO: target/release/pando
#
# The tree is made in memory (/dev/shm), imported, and snapshotted; then 1,000 files that are spread
# over all directories get another mode through a mount. Times are of the whole command, of which the
# least and the median of nine runs are printed. Needs root, or fusermount3.
set -eu

files=${1:-1000000}
pando=${2:-target/release/pando}
work=$(mktemp -d "${TMPDIR:-/tmp}/pando-diff.XXXXXX")
source=$(mktemp -d /dev/shm/pando-diff.XXXXXX)
end() {
    for engine in btree lsm; do
        "$pando" umount "$work/$engine" >/dev/null 2>&1 || true
    done
    rm -rf "$work" "$source"
}
trap end EXIT

python3 - "$source" "$files" <<'END'
import os, sys
top, files = sys.argv[1], int(sys.argv[2])
for directory in range(max(files // 1000, 1)):
    os.mkdir(f"{top}/{directory}")
    for file in range(min(files, 1000)):
        os.mknod(f"{top}/{directory}/{file}")
END

for engine in btree lsm; do
    mkdir "$work/mnt-$engine"
    "$pando" format --engine "$engine" "$work/$engine"
    "$pando" mount "$work/$engine" "$work/mnt-$engine"
    "$pando" --quiet import "$source" "$work/mnt-$engine/t"
    "$pando" snapshot create "$work/mnt-$engine/t" s
    python3 - "$engine" "$files" "$work/mnt-$engine/t" "$pando" <<'END'
import json, os, statistics, subprocess, sys, time
engine, files, top, pando = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
directories = max(files // 1000, 1)
for change in range(1000):
    os.chmod(f"{top}/{change % directories}/{change % 1000}", 0o600)
times = []
for run in range(10):
    begun = time.monotonic()
    result = subprocess.run([pando, "diff", "--stat", "--json", top + "@s", top],
                          check=True, capture_output=True)
    times.append((time.monotonic() - begun) * 1000)
warm = sorted(times[1:])
print(json.dumps({"bench": "diff", "engine": engine, "files": files, "first_ms": round(times[0], 1),
                  "least_ms": round(warm[0], 1), "median_ms": round(statistics.median(warm), 1),
                  "found": json.loads(result.stdout)}))
END
    "$pando" umount "$work/mnt-$engine"
done
