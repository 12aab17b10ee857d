#!/usr/bin/env bash
# The experiments of O. Rodeh, "B-trees, Shadowing, and Clones", section 7: makes a base tree once,
# runs every row of Tables II to X on clones of it, appends a line of JSON for each run to OUT, and
# prints the tables of docs/benchmarks/rodeh.md.
#   bench/rodeh.sh [SCRATCH]      FILES=9684662 ROUNDS=1 OPERATIONS=100000 OUT=target/rodeh.jsonl BENCH=target/release/pando-bench
# The paper did 20,000 operations in a run, which took its disk some ten seconds.
set -eu
cd "$(dirname "$0")/.."
scratch=${1:-/var/tmp}
files=${FILES:-9684662}
operations=${OPERATIONS:-100000}
out=${OUT:-target/rodeh.jsonl}
bench=${BENCH:-target/release/pando-bench}
base=$scratch/pando-rodeh-$files
[ -n "${BENCH:-}" ] || ${CARGO:-cargo} build --quiet --release --package pando-bench
trap 'rm -rf "$base"' EXIT
run() { # WORKLOAD PERCENT THREADS OPERATIONS [MORE...]
    "$bench" "$1" --files "$files" --volume "$base" --in-memory-percent "$2" --threads "$3" \
        --operations "$4" --json --quiet "${@:5}" | tee -a "$out" >&2
}
for _ in $(seq "${ROUNDS:-1}"); do
    for percent in 75 50 25 10 5 2; do # Table II; 5 is in Tables IV and VI too
        run rodeh-search100 "$percent" 1 "$operations"
        run rodeh-search100 "$percent" 10 "$operations"
    done
    for threads in 1 2; do # Table III
        run rodeh-search100 100 "$threads" 2000000
    done
    run rodeh-append 5 1 "$operations" # Table IV
    run rodeh-remove 5 1 "$operations"
    for mix in search80 modify insert; do # Tables IV and VI
        run "rodeh-$mix" 5 1 "$operations"
        run "rodeh-$mix" 5 10 "$operations"
    done
    for mix in search100 search80 modify insert; do
        run rodeh-checkpoint 5 10 "$operations" --mix "$mix"     # Table VII
        run rodeh-clones2 5 10 "$operations" --mix "$mix"        # Table VIII
        run rodeh-clones2 100 2 1000000 --mix "$mix"     # Table IX
        run rodeh-clones2 100 1 1000000 --mix "$mix"
    done
    run rodeh-clones256 5 10 500000 # Table X
    run rodeh-clones256 5 1 500000
done
exec python3 bench/rodeh_tables.py "$out"
