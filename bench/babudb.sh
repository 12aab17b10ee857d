#!/usr/bin/env bash
# The experiments of J. Stender et al., "BabuDB: Fast and Efficient File System Metadata Storage":
# Table I (latency of creates, normally, during a checkpoint and during a snapshot) with
# `pando-bench create-latency`, and Fig. 4 (creating 1,000 to 1,000,000 files in one directory, and
# listing it, warm and with caches dropped) through real mounts, with ext4 and btrfs alternately.
# Everything of Fig. 4 is on a loop device of its own: the peers directly, our volumes on ext4.
# Appends a line of JSON for each measurement to OUT and prints the tables of docs/benchmarks/babudb.md.
#   bench/babudb.sh [SCRATCH]     needs root, /dev/fuse, loop devices, btrfs-progs (else it takes xfs)
#   FILES="1000 10000 100000 1000000" TABLE="100000 1000000" ROUNDS=3 OUT=target/babudb.jsonl
#   SUBJECTS="lsm btree ext4 btrfs" PANDO=target/release/pando BENCH=target/release/pando-bench FSDRV=target/release/fsdrv
# Sizes from a million on are measured once.
set -eu
cd "$(dirname "$0")/.."
scratch=${1:-/var/tmp}/pando-babudb-$$
out=${OUT:-target/babudb.jsonl}
rounds=${ROUNDS:-3}
[ -n "${PANDO:-}${BENCH:-}${FSDRV:-}" ] ||
    ${CARGO:-cargo} build --quiet --release --package pando --package pando-bench --package pando-memfs
pando=$(realpath -e "${PANDO:-target/release/pando}")
bench=$(realpath -e "${BENCH:-target/release/pando-bench}")
fsdrv=$(realpath -e "${FSDRV:-target/release/fsdrv}")
if [ ! -e /dev/fuse ] || [ "$(id -u)" != 0 ]; then
    echo "needs root and /dev/fuse" >&2
    exit 1
fi
peer=btrfs
if ! command -v mkfs.btrfs >/dev/null || ! grep -qw btrfs /proc/filesystems; then
    peer=xfs
    echo "no btrfs here (mkfs.btrfs or the kernel lacks it): xfs takes its place" >&2
fi
subjects=${SUBJECTS:-lsm btree ext4 $peer}

mkdir -p "$scratch/mnt" "$scratch/disk"
leave() {
    umount "$scratch/mnt" 2>/dev/null || true
    umount "$scratch/disk" 2>/dev/null || true
    rm -rf "$scratch"
}
trap leave EXIT

image() { # SUBJECT: makes the file system of a loop device
    rm -f "$scratch/image"
    truncate -s 8G "$scratch/image"
    case $1 in
    btrfs) mkfs.btrfs -q "$scratch/image" >/dev/null ;;
    xfs) mkfs.xfs -q "$scratch/image" ;;
    *) mkfs.ext4 -q -i 4096 -E lazy_itable_init=0,lazy_journal_init=0 "$scratch/image" ;;
    esac
}
up() { # SUBJECT
    case $1 in
    lsm | btree)
        mount -o loop "$scratch/image" "$scratch/disk"
        [ -d "$scratch/disk/volume" ] ||
            "$pando" format --engine "$1" "$scratch/disk/volume" --quiet >/dev/null
        "$pando" mount "$scratch/disk/volume" "$scratch/mnt" --quiet >/dev/null
        ;;
    *) mount -o loop "$scratch/image" "$scratch/mnt" ;;
    esac
}
down() { # SUBJECT
    case $1 in
    lsm | btree)
        "$pando" umount "$scratch/mnt" --quiet >/dev/null
        umount "$scratch/disk"
        ;;
    *) umount "$scratch/mnt" ;;
    esac
}
drive() { # SUBJECT FILES PHASE CACHES
    "$fsdrv" "$scratch/mnt" --layout shared --threads 1 --files "$2" --phases "$3" |
        sed "s/^{/{\"subject\":\"$1\",\"files\":$2,\"caches\":\"$4\",/" | tee -a "$out" >&2
}
occupied() { # SUBJECT FILES: blocks that the files took of the image, after all was written
    printf '{"subject":"%s","files":%s,"phase":"disk","bytes":%s}\n' \
        "$1" "$2" "$(df --output=used -B1 "$scratch/$3" | tail -1)" | tee -a "$out" >&2
}

for files in ${TABLE-100000 1000000}; do
    for engine in lsm btree; do
        [ "$files" -lt 1000000 ] && times=$rounds || times=1
        TMPDIR=$scratch "$bench" create-latency --engine "$engine" --files "$files" \
            --rounds "$times" --json --quiet | tee -a "$out" >&2
    done
done
for files in ${FILES-1000 10000 100000 1000000}; do
    [ "$files" -lt 1000000 ] && times=$rounds || times=1
    for _ in $(seq "$times"); do
        for subject in $subjects; do
            case $subject in lsm | btree) disk=disk ;; *) disk=mnt ;; esac
            image "$subject"
            up "$subject"
            occupied "$subject" 0 $disk
            drive "$subject" "$files" create warm
            drive "$subject" "$files" list warm
            down "$subject"
            sync
            echo 3 >/proc/sys/vm/drop_caches
            up "$subject"
            occupied "$subject" "$files" $disk
            drive "$subject" "$files" list dropped
            down "$subject"
        done
    done
done
python3 bench/babudb_tables.py "$out"
