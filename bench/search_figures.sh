#!/usr/bin/env bash
# The paper's figures that are not query times: 3 (one cluster), 4 (creates against the size of the system),
# 5 (size of clusters), 6 and Table 3 (Postmark), and clones. One JSON object a line; each run is taken ROUNDS
# times alternately.
#   bench/search_figures.sh [SCRATCH]   SIZES="100000 250000 500000"   SWEEP=200000   ROUNDS=1
#     CLONES=10000   ROWS=200000
set -eu
cd "$(dirname "$0")/.."
program=${BENCH:-$PWD/target/release/pando-bench}
work=$(mktemp -d "${1:-${TMPDIR:-/var/tmp}}/pando-figures.XXXXXX")
trap 'rm -rf "$work"' EXIT
sizes=${SIZES:-100000 250000 500000} sweep=${SWEEP:-200000} rounds=${ROUNDS:-1}
clones=${CLONES:-10000} rows=${ROWS:-200000}
bench() { "$program" "$@" --json; }

# 3: queries, balancing, writing, inserting.
bench cluster-search --files "$rows"

for _ in $(seq "$rounds"); do
  # 4: creates a second as the system grows, for three kinds of namespaces.
  for profile in web eng home; do
    for files in $sizes; do
      bench search --files "$files" --profile "$profile" --queries 1 --index-cache 1G | grep '"set":"fill"'
    done
  done
  # 5: the most names of a cluster; queries of set 1 in memory and cold.
  for most in 500 1000 2000 5000 10000 20000 40000; do
    for mode in "" "--cold --queries 20"; do
      # shellcheck disable=SC2086  # several words
      bench search --files "$sweep" --profile web --cluster-rows "$most" --index-cache 1G \
        --volume "$work/sweep-$most" $mode |
        grep -E '"set":"(fill|1)"' | sed "s/^{/{\"cluster_rows\":$most,/"
    done
    rm -rf "$work/sweep-$most" "$work/sweep-$most.sample.json"
  done
  # 6 and Table 3: Postmark as the paper had it, with the index and without.
  for index in "" --no-index; do
    # shellcheck disable=SC2086  # a word or none
    bench postmark --files 50000 --directories 20000 $index
  done
done

# Clones of a directory with a change each.
bench search-clones --files 100000 --clones "$clones"
