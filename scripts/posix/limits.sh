#!/usr/bin/env bash
# Limits at their edge (docs/limits.md) on a mounted volume, and how a large directory behaves.
#   scripts/posix/limits.sh               1 million entries, 100,000 open files
#   scripts/posix/limits.sh quick         what `make test` runs: 50,000 entries, 20,000 open files
#   scripts/posix/limits.sh full          10 million entries, 1,048,576 links, the bars checked
. "$(dirname "$0")/lib.sh"
skip_without_mounts
case ${1:-} in
  quick) entries=50000 open=20000 links=2000 ;;
  full) entries=10000000 open=100000 links=1048576; export BARS=1 ;;
  *) entries=1000000 open=100000 links=2000 ;;
esac
mount_pando suid,dev
pid=$("$pando" status --json "$volume" | tr ',{}' '\n\n\n' | sed -n 's/^ *"pid": *\([0-9][0-9]*\).*/\1/p' | head -1)
python3 scripts/posix/limits.py "$mnt" "$pid" "$entries" "$open" "$links" || fail "a limit is not where it should be"
mkdir "$mnt/many"
count=300
[ "${1:-}" = quick ] || count=2000
for n in $(seq $count); do mkdir "$mnt/many/.snapshots/$n"; done
[ "$(ls "$mnt/many/.snapshots" | wc -l)" -eq $count ] || fail "$count snapshots"
echo "{\"limit\": \"snapshots\", \"made\": $count}"
"$pando" umount "$mnt" > /dev/null
"$pando" fsck "$volume" > "$work/fsck.log" 2>&1 || { cat "$work/fsck.log" >&2; fail "the volume is not well"; }
