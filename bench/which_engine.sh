#!/usr/bin/env bash
# Which engine when: the same workloads on both engines, alternately, in process. Appends a line of JSON
# for each run to OUT and prints the table of docs/benchmarks/which-engine.md. At the default size on
# two processors it takes less than ten minutes.
#   bench/which_engine.sh [SCRATCH]    FILES=400000 CLONES=1000 ROUNDS=3 OUT=target/which-engine.jsonl
#   BENCH=target/release/pando-bench
# The rows "memory for a part": a cache of CACHE (16M), past the page cache of the system.
set -eu
cd "$(dirname "$0")/.."
scratch=${1:-/var/tmp}/pando-which-$$
files=${FILES:-400000}
cache=${CACHE:-16M}
out=${OUT:-target/which-engine.jsonl}
bench=${BENCH:-target/release/pando-bench}
[ -n "${BENCH:-}" ] || ${CARGO:-cargo} build --quiet --release --package pando-bench
mkdir -p "$scratch"
trap 'rm -rf "$scratch"' EXIT
export TMPDIR=$scratch
begun=$(date +%s)
run() { # ROW WORKLOAD [OPTIONS...]: on both engines; the first is second next time
    row=$1
    shift
    if [ $((round % 2)) = 0 ]; then order="lsm btree"; else order="btree lsm"; fi
    for engine in $order; do
        "$bench" "$@" --engine "$engine" --no-index --json --quiet |
            sed "s/^{/{\"row\":\"$row\",/" | tee -a "$out" >&2
    done
}
for round in $(seq "${ROUNDS:-3}"); do
    run create create-deep --files "$files"
    run create-2 create-deep --files "$files" --threads 2
    run stat stat --files "$files"
    run scattered create-scattered --files "$files" --directories 2000 --rounds 3
    run list list --files "$files"
    run clone clone --files "$files"
    run clones clone-lookups --entries 100000 --clones "${CLONES:-1000}" --rounds 3
    run stat-part stat --files "$files" --cache-size "$cache" --direct --operations 50000
    run scattered-part create-scattered --files "$files" --directories 2000 --rounds 3 \
        --cache-size "$cache" --direct
    run open reopen --files "$files"
done
python3 bench/which_engine_table.py "$out"
echo "took $(($(date +%s) - begun)) s" >&2
