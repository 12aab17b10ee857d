#!/usr/bin/env bash
# Our engines beside redb, fjall, RocksDB and the ordered map of the standard library, interleaved,
# each in a process of its own. Appends a line of JSON for each run to OUT and prints the tables of
# docs/benchmarks/engines.md.
#   bench/engines.sh [SET...]     SETS: memory (1,000,000 entries, 1 GiB of cache), tight (256 MiB:
#                                 twice the data), cold (32 MiB: a quarter of the data, page cache
#                                 kept empty), large (10,000,000 entries, 6 GiB)
#   ROUNDS=3 OUT=target/engines.jsonl SCRATCH=/var/tmp ENGINES="btree lsm redb ..." FEATURES=rocksdb
# RocksDB is the distribution's (librocksdb-dev) where apt-get can install it, or with
# ROCKSDB=source built from the crate's source, which takes a C++ compiler and most of an hour; with
# ROCKSDB=none it is left out. All is built at low priority.
set -eu
cd "$(dirname "$0")/.."
scratch=${SCRATCH:-/var/tmp}
rounds=${ROUNDS:-3}
out=${OUT:-target/engines.jsonl}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target/engines}

need() { # PACKAGE...
    dpkg -s "$@" >/dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@"; }
}
features=rocksdb
link=
case ${ROCKSDB:-system} in
system)
    need libclang-dev librocksdb-dev
    ROCKSDB_LIB_DIR=$(dirname "$(dpkg -L librocksdb-dev | grep 'librocksdb\.so$')")
    export ROCKSDB_LIB_DIR
    # The crate knows newer libraries and names a function that older ones lack, to let go of an
    # object that is never made here: any symbol will do.
    link=-Clink-arg=-Wl,--defsym=rocksdb_write_buffer_manager_destroy=main
    nm -D "$ROCKSDB_LIB_DIR/librocksdb.so" | grep -q write_buffer_manager_destroy && link=
    ;;
source) need g++ libclang-dev ;;
none) features= ;;
esac
# shellcheck disable=SC2086
nice -n "${BUILD_NICE:-15}" "${CARGO:-cargo}" rustc --quiet --release --jobs "${JOBS:-1}" \
    --manifest-path bench/engines/Cargo.toml --no-default-features --features "$features" -- $link
program=$CARGO_TARGET_DIR/release/pando-engines

engines=${ENGINES:-"btree lsm redb fjall ${features:+rocksdb} map"}
for set in "${@:-memory}"; do
    case $set in
    memory) options="--entries 1000000 --cache-mib 1024" ;;
    tight) options="--entries 1000000 --cache-mib 256" ;;
    cold) options="--entries 1000000 --cache-mib 32 --updates 50000 --reads 30000 --cold" ;;
    large) options="--entries 10000000 --cache-mib 6144 --reads 2000000" ;;
    *)
        echo "no set $set: memory, tight, cold or large" >&2
        exit 2
        ;;
    esac
    for _ in $(seq "$rounds"); do
        for engine in $engines; do
            # The map has no cache and nothing on disk.
            [ "$set $engine" = "cold map" ] && continue
            # shellcheck disable=SC2086
            "$program" run "$engine" $options --dir "$scratch" | tee -a "$out" >&2
        done
    done
done
"$program" table "$out"
