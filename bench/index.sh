#!/usr/bin/env bash
# Scans of a tree against the public walkers that read the same attributes, in interleaved rounds:
# one JSON object a line with the median of the rounds. Cold rounds need root.
#   bench/index.sh [DIR] [SCRATCH]      ROUNDS=5 COLD=3
set -eu
cd "$(dirname "$0")/.."
pando=$PWD/target/release/pando
dir=$(realpath "${1:-/usr}")
work=$(mktemp -d "${2:-${TMPDIR:-/var/tmp}}/pando-index.XXXXXX")
rounds=${ROUNDS:-5} cold=${COLD:-3}
export PANDO_IDLE_SECONDS=600
trap 'kill "$(cat "$work"/*/owner.lock 2>/dev/null)" 2>/dev/null || true; rm -rf "$work"' EXIT
fd=$(command -v fdfind || command -v fd || true)
format='%p\t%y\t%m\t%n\t%U\t%G\t%s\t%b\t%T@\t%C@\t%A@\t%i\n'

run() { # NAME COMMAND...: wall seconds of one run into $work/NAME.times
  local name=$1 start
  shift
  start=$(date +%s%N)
  "$@" >/dev/null 2>&1 || true
  echo $(($(date +%s%N) - start)) >>"$work/$name.times"
}
first() { # a scan into an empty volume; making the volume is not measured
  "$pando" umount "$work/fresh" >/dev/null 2>&1 || true
  if [ -f "$work/fresh/owner.lock" ]; then
    kill "$(cat "$work/fresh/owner.lock")" 2>/dev/null || true
    while [ -S "$work/fresh/control.sock" ]; do sleep 0.01; done
    rm -rf "$work/fresh"
  fi
  "$pando" format -q "$work/fresh" >/dev/null
  "$pando" status "$work/fresh" >/dev/null
}
all() { # PREFIX BEFORE: each contender once, BEFORE run ahead of each
  local prefix=$1 before=$2
  $before; run "$prefix-find-attributes" find "$dir" -xdev -printf "$format"
  if command -v bfs >/dev/null; then
    $before; run "$prefix-bfs-attributes" bfs "$dir" -xdev -printf "$format"
    $before; run "$prefix-bfs-names" bfs "$dir" -xdev
  fi
  $before; run "$prefix-find-names" find "$dir" -xdev
  if [ -n "$fd" ]; then
    $before; run "$prefix-fd-attributes" "$fd" -uu --one-file-system -l . "$dir"
    $before; run "$prefix-fd-names" "$fd" -uu --one-file-system . "$dir"
  fi
  first; $before; run "$prefix-pando-first" "$pando" index -q "$dir" --into "$work/fresh"
  $before; run "$prefix-pando-refresh" "$pando" index -q "$dir" --into "$work/kept"
  $before
  run "$prefix-pando-directories" "$pando" index -q "$dir" --into "$work/kept" --refresh directories
}
drop() { sync; echo 3 >/proc/sys/vm/drop_caches; }

"$pando" index -q "$dir" --into "$work/kept" >/dev/null 2>&1 || true
for _ in $(seq "$rounds"); do all warm :; done
if [ "$(id -u)" = 0 ] && [ "$cold" -gt 0 ]; then
  for _ in $(seq "$cold"); do all cold drop; done
fi
files=$(find "$dir" -xdev 2>/dev/null | wc -l)
python3 - "$work" "$dir" "$files" <<'PY'
import glob, json, os, statistics, sys
work, tree, files = sys.argv[1], sys.argv[2], int(sys.argv[3])
medians = {}
for path in sorted(glob.glob(work + "/*.times")):
    times = [int(line) / 1e9 for line in open(path)]
    medians[os.path.basename(path)[:-6]] = (statistics.median(times), len(times))
for name, (median, rounds) in medians.items():
    cache, who = name.split("-", 1)
    walkers = [m for n, (m, _) in medians.items()
               if n.startswith(cache) and n.endswith("attributes")]
    print(json.dumps({
        "cache": cache, "who": who, "tree": tree, "files": files, "rounds": rounds,
        "seconds": round(median, 4), "files_per_second": round(files / median),
        "of_fastest_walker": round(median / min(walkers), 3),
    }))
PY
