#!/usr/bin/env bash
# Totals of directories as extended attributes (user.pando.rbytes), by `pando du` and by `pando summary`, as
# root and as an ordinary user: on a base of the index, and after CHANGES random changes of all kinds through
# the mount (search_changes.py), of which the newest base may have some. One JSON object a line (totals.py).
# VOLDIR is a volume that `pando-bench search --volume VOLDIR` left, or is made with FILES files on the engine.
# It stays, changed. As root. OTHER names another program that is asked the same at the end, over the same
# volume.
#   bench/totals.sh [--engine btree|lsm] VOLDIR [MOUNTPOINT]      FILES=1000000 CHANGES=30000 OTHER=
set -eu
engine=${ENGINE:-btree}
if [ "$1" = --engine ]; then
  engine=$2
  shift 2
fi
cd "$(dirname "$0")/.."
export PANDO=${PANDO:-$PWD/target/release/pando} PANDO_IDLE_SECONDS=3
bench=${BENCH:-$PWD/target/release/pando-bench}
PANDO=$(realpath "$PANDO")
volume=$(realpath -m "$1") files=${FILES:-1000000} changes=${CHANGES:-30000}
mounted=${2:-$(mktemp -d "${TMPDIR:-/var/tmp}/pando-totals.XXXXXX")}
# Other users can reach it, and the program.
chmod a+rx "$mounted"
program=$(mktemp -d "${TMPDIR:-/var/tmp}/pando-program.XXXXXX")
cleanup() {
  ! mountpoint -q "$mounted" || "$PANDO" umount "$mounted" >&2 || true
  [ -n "${2:-}" ] || rmdir "$mounted" 2>/dev/null || true
  rm -rf "$program"
}
trap 'cleanup "$@"' EXIT
if [ ! -e "$volume" ]; then
  echo "$(date +%T) making $volume" >&2
  "$bench" search --engine "$engine" --files "$files" --queries 5 --volume "$volume" >/dev/null
fi
chmod a+rx "$program"
cp "$PANDO" "$program/pando"
PANDO=$program/pando
"$PANDO" mount "$volume" "$mounted" -o allow_other >&2
# Of a volume that was there.
engine=$("$PANDO" status --json "$volume" | python3 -c 'import json, sys; print(json.load(sys.stdin)["engine"])')
python3 bench/totals.py "$mounted" "$engine" "a base"
echo "$(date +%T) changing" >&2
(cd "$mounted" && "$PANDO" find . -type f -print0) |
  shuf -z -n "$changes" --random-source=<(yes) |
  python3 bench/search_changes.py "$mounted" "$changes" 1 >&2
python3 bench/totals.py "$mounted" "$engine" "$changes changes"
"$PANDO" status --json "$volume" >&2
if [ -n "${OTHER:-}" ]; then
  owner=$(head -n 1 "$volume/owner.lock")
  "$PANDO" umount "$mounted" >&2
  while kill -0 "$owner" 2>/dev/null; do sleep 0.2; done
  PANDO=$program/other
  cp "$(realpath "$OTHER")" "$PANDO"
  "$PANDO" mount "$volume" "$mounted" -o allow_other >&2
  python3 bench/totals.py "$mounted" "$engine" "$changes changes, the other program"
fi
