#!/usr/bin/env bash
# What the index costs on the path of creating a file: instructions between the beginning and the end of
# `mknod::make` (which executes the plan; its caller is inlined), on the thread that calls it, with and without an index, by
# callgrind, same binary. What other threads do behind (bases, checkpoints) is not in it. One JSON object.
#   bench/create_index_cost.sh [FILES] [SCRATCH]
set -eu
cd "$(dirname "$0")/.."
bench=${BENCH:-$PWD/target/release/pando-bench} files=${1:-40000}
work=$(mktemp -d "${2:-${TMPDIR:-/var/tmp}}/pando-create.XXXXXX")
trap 'rm -rf "$work"' EXIT
run() { # NAME OPTION...: instructions of the creates
  local name=$1
  shift
  mkdir "$work/volume-$name"
  # The process may end by a fault of reading its own auxiliary vector, which valgrind does not show as the
  # kernel does; that is after the creates.
  valgrind --tool=callgrind --toggle-collect='ops::posix::mknod::make' \
    --callgrind-out-file="$work/$name" \
    "$bench" create-deep --files "$files" --threads 1 --volume "$work/volume-$name" --json "$@" \
    >/dev/null 2>"$work/$name.log" || true
  sed -n 's/^==[0-9]*== Collected : //p' "$work/$name.log"
}
with=$(run with)
without=$(run without --no-index)
[ "${without:-0}" -gt "$files" ] || { cat "$work"/*.log >&2; exit 1; }
python3 - "$files" "$with" "$without" <<'PY'
import json, sys
files, own, bare = map(int, sys.argv[1:])
print(json.dumps({
    "bench": "create-index-cost", "files": files, "instructions_a_create": round(own / files),
    "without_index": round(bare / files), "ratio": round(own / bare, 4),
}))
PY
