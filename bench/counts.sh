#!/usr/bin/env bash
# Counts the instructions of thirteen operations on both engines (`pando-bench counts`) under callgrind, and compares them with
# bench/counts.txt. docs/benchmarks/counts.md explains the figures.
#   bench/counts.sh          exits with 1 if an operation, or the sum of an engine, needs over TOLERANCE % (1) more
#   bench/counts.sh record   writes the table instead; commit it with the reason for each change
#   bench/counts.sh test [record]   the same of the program that `make test` built, with bench/counts_test.txt: fewer
#                            times, and a TOLERANCE of 3 %, because that build is optimized less
#   PROGRAM=FILE bench/counts.sh    the same of a program that is already built
#   FAR=1 bench/counts.sh           prints the counts of a server and of its client, too; no table has them
# Counts depend on the compiler, the C library and what the processor offers: on others than the table's nothing is
# compared, which the last line reports. With CI=true every other reason to compare nothing is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
tolerance=${TOLERANCE:-1}
files=2000
table=bench/counts.txt
program=${PROGRAM:-target/release/pando-bench}
built=
if [ "${1:-}" = test ]; then
  shift
  tolerance=${TOLERANCE:-3}
  files=500
  table=bench/counts_test.txt
  program=${PROGRAM:-target/debug/pando-bench}
  # What decides how a test build is optimized.
  built=", profile $(sed -n '/^\[profile\.dev/,/^$/p' Cargo.toml | cksum | cut -d' ' -f1)"
  [ -z "$(ls -A target/debug/incremental 2> /dev/null)" ] || built="$built, incremental"
fi
not_here() {
  echo "NOT TESTED: instruction counts: $*"
  exit 0
}
# The same where the repository or the set-up could be at fault, not only the machine: CI must not pass by it.
not_tested() {
  [ "${CI:-}" != true ] || { echo "FAILED: instruction counts are not tested, and CI=true: $*"; exit 1; }
  not_here "$@"
}

# Generic code that several crates below the file system need is compiled once, in one of them: none may be slow.
unoptimized() {
  $cargo tree --package pando-fs --edges normal,no-proc-macro --prefix none --format '{p}' |
    sed '/ (\/.*)/d; s/ .*//' | sort -u |
    while read -r name; do grep -qxF "[profile.dev.package.$name]" Cargo.toml || echo "$name"; done
}
if [ -n "$built" ]; then
  missing=$(unoptimized)
  [ -z "$missing" ] || {
    echo "crates below pando-fs without an opt-level: give them one in Cargo.toml (docs/decisions/0291):" $missing
    exit 1
  }
fi

command -v valgrind > /dev/null || not_tested "valgrind is not installed (scripts/setup.sh counts)"
# Valgrind shows every program the same processor, as far as it knows the host's features.
features=$(grep -m1 '^flags' /proc/cpuinfo | tr ' ' '\n' | grep -xE 'avx2|bmi2|sse4_2' | sort | tr '\n' ' ')
here="$(rustc --version | cut -d' ' -f1-2), $(ldd --version | head -1 | grep -oE '[0-9.]+$' | sed 's/^/glibc /'), $(valgrind --version), $(uname -m) $features"
machine=${here% }
here=$machine$built
recorded=$(sed -n 's/^# counted with //p' "$table" 2> /dev/null || true)
if [ "${1:-}" != record ] && [ "$recorded" != "$here" ]; then
  why="$table was counted with ${recorded:-nothing: record it}; here is $here"
  [ -z "$recorded" ] || [ "${recorded%%, profile *}" = "$machine" ] || not_here "$why"
  not_tested "$why"
fi

[ -n "${PROGRAM:-}$built" ] || $cargo build --release --package pando-bench --quiet
[ -x "$program" ] || not_tested "there is no $program"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Without random addresses where that is allowed; they change little.
fixed=()
setarch -R true 2> /dev/null && fixed=(setarch -R)

count() {
  "${fixed[@]}" valgrind --tool=callgrind --quiet --trace-children=yes --dump-before='*counts_mark*' \
    --callgrind-out-file="$work/$1.%p" "$program" counts --engine "$1" --files "$files" --quiet ${FAR:+--far} > "$work/$1.parts"
  # The program that serves a volume is a process of its own: the last column names the process.
  while IFS=$'\t' read -r engine operation times once twice process; do
    awk -v OFS='\t' -v engine="$engine" -v operation="$operation" -v times="$times" \
      '/^totals:/ { part[FILENAME] = $2 }
       END { printf "%s\t%s\t%.1f\n", engine, operation, (part[ARGV[ARGC - 1]] - (ARGC > 2 ? part[ARGV[1]] : 0)) / times }' \
      $([ "$once" = 0 ] || echo "$work/$engine.$process.$once") "$work/$engine.$process.$twice"
  done < "$work/$1.parts"
}
engines=(btree lsm)
pids=()
for engine in "${engines[@]}"; do
  count "$engine" > "$work/$engine.counts" &
  pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid"; done
for engine in "${engines[@]}"; do
  cat "$work/$engine.counts"
done > "$work/counts"

if [ "${1:-}" = record ]; then
  {
    echo "# Instructions of an operation, counted by bench/counts.sh${built:+ test}; docs/benchmarks/counts.md explains them."
    echo "# counted with $here"
    cat "$work/counts"
  } > "$table"
  cat "$table"
  exit 0
fi
awk -F'\t' -v tolerance="$tolerance" '
  function line(engine, operation, was, is,   change) {
    change = (is / was - 1) * 100
    mark = change > tolerance ? "  WORSE" : change < -tolerance ? "  better: record it" : ""
    worse += change > tolerance
    printf "%-6s %-18s %14.1f %14.1f %+7.2f %%%s\n", engine, operation, was, is, change, mark
  }
  BEGIN { printf "%-6s %-18s %14s %14s %9s\n", "engine", "operation", "recorded", "now", "change" }
  /^#/ { next }
  NR == FNR { was[$1, $2] = $3; rows++; next }
  $2 ~ /^(durable|remote) / { printf "%-6s %-22s %14s %14.1f\n", $1, $2, "", $3; next }
  !(($1, $2) in was) { print $1, $2, "is not in the table: record it"; worse++; next }
  {
    line($1, $2, was[$1, $2], $3)
    seen++
    # An opening replays thousands of creates: one of them represents it.
    if ($2 != "open after crash") { sum[$1] += $3; sum_was[$1] += was[$1, $2] }
  }
  END {
    for (engine in sum) line(engine, "sum", sum_was[engine], sum[engine])
    if (seen != rows) { print "counted " seen + 0 " of " rows " operations"; worse++ }
    if (worse) print worse " counts are worse by more than " tolerance " %"
    exit worse > 0
  }' "$table" "$work/counts"
