#!/usr/bin/env bash
# A small snapshot in a large volume: how long the commands take on the mounted volume, and until
# the space of a removed sibling tree is back although the snapshot was taken of the same tree.
#   bench/prune.sh [SCRATCH]      FILES=1000000 REMOVED=900000
set -eu
cd "$(dirname "$0")/.."
pando=$PWD/target/release/pando
work=$(mktemp -d "${1:-${TMPDIR:-/var/tmp}}/pando-prune.XXXXXX")
volume=$work/v mount=$work/m
files=${FILES:-1000000} removed=${REMOVED:-900000}
mkdir "$mount"
trap '"$pando" umount "$mount" >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
now() { date +%s%N; }
disk() { du -s --block-size=1 "$volume" | cut -f1; }
field() { "$pando" status --json "$volume" | tr ',{}' '\n\n\n' | sed -n "s/^ *\"$1\": *\([a-z0-9]*\).*/\1/p" | head -1; }

"$pando" format -q "$volume"
"$pando" mount "$volume" "$mount" >/dev/null
mkdir "$mount/keep" "$mount/few"
for n in 0 1 2 3 4 5 6 7 8 9; do echo "$n" >"$mount/few/$n"; done
python3 - "$work/source" "$removed" "$((files - removed))" <<'PY'
import os, sys
root, big, rest = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for name, count in (("big", big), ("rest", rest)):
    for number in range(0, count, 1000):
        directory = f"{root}/{name}/d{number // 1000}"
        os.makedirs(directory)
        for file in range(min(1000, count - number)):
            os.close(os.open(f"{directory}/file{file:08}", os.O_CREAT | os.O_WRONLY))
PY
start=$(now)
"$pando" import -q "$work/source" "$mount/tree"
import_ms=$((($(now) - start) / 1000000))
full=$(disk)
start=$(now); "$pando" snapshot create -q "$mount/few" s; snapshot_ms=$((($(now) - start) / 1000000))
start=$(now); "$pando" clone -q "$mount/tree" "$mount/clone"; clone_ms=$((($(now) - start) / 1000000))
"$pando" rmr -q "$mount/clone"
start=$(now); "$pando" rmr -q "$mount/tree/big"; rmr_ms=$((($(now) - start) / 1000000))
while :; do
  seconds=$((($(now) - start) / 1000000000))
  left=$(disk)
  [ "$(field idle)" = true ] && [ "$left" -lt $((full / 2)) ] && break
  [ "$seconds" -lt 180 ] || break
  sleep 0.5
done
printf '{"workload":"prune","files":%d,"removed":%d,"import_ms":%d,"snapshot_cli_ms":%d,"clone_cli_ms":%d,"rmr_cli_ms":%d,"bytes_before":%d,"bytes_after":%d,"seconds_until_back":%d}\n' \
  "$files" "$removed" "$import_ms" "$snapshot_ms" "$clone_ms" "$rmr_ms" "$full" "$left" "$seconds"
