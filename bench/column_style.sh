#!/usr/bin/env bash
# The column-style layout of the engine lsm: IndexFS Fig. 10 and Table III, and what is written for what is
# given. Appends a line of JSON for each run to OUT; the tables of docs/benchmarks/column-style.md are those.
#   bench/column_style.sh [SCRATCH]    ENTRIES=200000 WRITES="1000000 10000000" OUT=target/column.jsonl
#   VALUE_BYTES=100 POLICIES=full,tiered,column BENCH=target/release/pando-bench
# Two processors, quiet: ENTRIES=1000000 took two minutes; beside builds, WRITES=1000000 one. More than 10,000,000 leave
# full merges out. WRITES=50000000 takes ten minutes, and 7 GB are on SCRATCH at its end; with VALUE_BYTES=8
# POLICIES=tiered two minutes and 1 GB.
set -eu
cd "$(dirname "$0")/.."
scratch=${1:-/var/tmp}/pando-column-$$
out=${OUT:-target/column.jsonl}
bench=${BENCH:-target/release/pando-bench}
[ -n "${BENCH:-}" ] || ${CARGO:-cargo} build --quiet --release --package pando-bench
mkdir -p "$scratch"
trap 'rm -rf "$scratch"' EXIT
bench() {
    begun=$(date +%s)
    "$bench" "$@" --volume "$scratch" --json --quiet | tee -a "$out"
    echo "$1 took $(($(date +%s) - begun)) s" >&2
}
[ "${ENTRIES:-200000}" = 0 ] || bench column-style --entries "${ENTRIES:-200000}"
for entries in ${WRITES-1000000 10000000}; do
    # A full merge after each checkpoint writes the square of what there is.
    policies=full,tiered,column
    [ "$entries" -le 10000000 ] || policies=tiered,column
    bench write-amplification --entries "$entries" --policy "${POLICIES:-$policies}" \
        --value-bytes "${VALUE_BYTES:-100}"
done
