#!/usr/bin/env bash
# Which tests cost most: runs each alone, and prints its CPU time and wall time in seconds, the
# package and its name, the dearest first. CPU time is more reliable than wall time on a busy machine.
#   scripts/slow-tests.sh [NUMBER [PATTERN]]     the 40 dearest; of packages whose directory matches
# It runs the programs that `make test` builds. Those of crates/pando
# wait for daemons, whose time is not the tests', and are left out.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
number=${1:-40} pattern=${2:-}
export MALLOC_MMAP_THRESHOLD_=1000000000 MALLOC_TRIM_THRESHOLD_=500000000

one() {
  local directory=$1 program=$2 test=$3 cost code=0
  TIMEFORMAT='%U %S %R'
  cd "$directory"
  cost=$({ time "$program" --exact "$test" --test-threads=1 > /dev/null 2>&1; } 2>&1) || code=$?
  awk -v cost="$cost" -v what="${directory#"$root/"} $test" -v code="$code" \
    'BEGIN { split(cost, t, " "); printf "%8.2f %8.2f  %s%s\n", t[1] + t[2], t[3], what, code == 0 ? "" : "  FAILED" }'
}
export -f one
export root=$PWD

$cargo test --workspace --features pando-scheduled/sim --bins --tests --no-run --quiet --message-format=json |
  sed -n 's/.*"manifest_path":"\([^"]*\)\/Cargo.toml".*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*/\1 \2/p' |
  while read -r directory program; do
    [[ $directory == */crates/pando ]] && continue
    [[ $directory == *$pattern* ]] || continue
    (cd "$directory" && "$program" --list --format terse < /dev/null 2> /dev/null || true) |
      sed -n "s|\(.*\): test\$|$directory $program \1|p"
  done |
  xargs -L 1 -P "$(nproc)" bash -c 'one "$@"' one | sort -rn | awk -v number="$number" '
    { cpu += $1; all++; of[$3] += $1; if (NR <= number) print }
    END {
      for (package in of) printf "%8.2f  %s\n", of[package], package | "sort -rn"
      close("sort -rn")
      printf "%8.2f  %d tests\n", cpu, all
    }'
