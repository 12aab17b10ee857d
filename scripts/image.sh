#!/usr/bin/env bash
# Makes an image of a volume for testing/tests/it/images.rs: what a program of this version leaves behind a crash.
#   scripts/image.sh PANDO ENGINE FILE.tar.zst [KIND]   PANDO is the program; the image must have less than 200 KB
# KIND: column (long values in value logs), nested (subvolumes in copies that inherit, a schedule, a hold, an index),
# objects (the objects of a volume in an object store, without the directory of its host).
# An image is made once, by the program of its time, and never again: tests read it with later ones.
set -euo pipefail
pando=$(realpath "${1:?the program}")
engine=${2:?btree or lsm}
image=$(realpath -m "${3:?the file}")
kind=${4:-}
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill -KILL "$pid" 2> /dev/null || true; rm -rf "$work"' EXIT
vol=$work/vol source=$work/source of=$work/vol
export PANDO_IDLE_SECONDS=600
daemon() { "$pando" --json status "$vol" | grep -oE '"pid": ?[0-9]+' | grep -oE '[0-9]+' | head -1; }

mkdir -p "$source/deep/er"
echo small > "$source/small"
seq 1 20000 > "$source/large"
seq 1 300 | while read -r number; do echo "$number" > "$source/deep/file$number"; done
ln "$source/small" "$source/deep/second"
ln -s ../small "$source/deep/link"
truncate -s 1M "$source/sparse"
echo end >> "$source/sparse"
printf 'x%.0s' {1..200} > "$source/deep/er/$(printf 'n%.0s' {1..200})"

if [ "$kind" = objects ]; then
  of=$work/store
  vol=file://$of
  mkdir "$of"
  export PANDO_HOST_DIRECTORY=$work/hosts
fi

layout=()
[ "$kind" != column ] || layout=(--layout column)
"$pando" format "$vol" --engine "$engine" "${layout[@]}"
"$pando" import --quiet "$source" "$vol:/data"
if [ "$kind" = nested ]; then
  "$pando" subvolume create "$vol:/data/inner"
  "$pando" subvolume create "$vol:/data/inner/below"
  "$pando" import --quiet "$source/deep/file7" "$vol:/data/inner/seven"
  "$pando" import --quiet "$source/deep/file8" "$vol:/data/inner/below/eight"
fi
"$pando" snapshot create "$vol:/data" monday
"$pando" trash on "$vol:/data"
echo changed > "$source/small"
echo later > "$source/later"
"$pando" import --quiet "$source" "$vol:/data"
"$pando" clone "$vol:/data" "$vol:/fork"
"$pando" rmr "$vol:/fork/deep"
"$pando" quota set "$vol:/fork" --files 1000 --bytes 1G
"$pando" search declare "$vol" user.color
"$pando" subvolume create "$vol:/empty"
if [ "$kind" = nested ]; then
  "$pando" clone "$vol:/data" "$vol:/copy"
  "$pando" clone "$vol:/copy" "$vol:/copied"
  "$pando" import --quiet "$source/deep/file9" "$vol:/copied/inner/nine"
  "$pando" snapshot create "$vol:/copy" held
  "$pando" snapshot hold "$vol:/copy" held backup
  "$pando" snapshot schedule "$vol:/copy" @yearly --keep 3y
  "$pando" search flush "$vol:/"
fi
if [ "$kind" = column ] || [ "$kind" = nested ]; then
  # Closed cleanly, so that all of it is in the engine's files.
  "$pando" sync "$vol"
  pid=$(daemon)
  kill "$pid"
  while kill -0 "$pid" 2> /dev/null; do sleep 0.1; done
fi
"$pando" sync "$vol"
# What follows is only in the log.
"$pando" snapshot create "$vol:/fork" tuesday
"$pando" sync "$vol"
pid=$(daemon)
kill -KILL "$pid"
while kill -0 "$pid" 2> /dev/null; do sleep 0.1; done

rm -f "$of/control.sock" "$of/owner.lock" "$of/owner.log"
tar --create --format=ustar --owner=0 --group=0 --numeric-owner --sort=name --directory "$of" . |
  zstd --quiet --force -19 --threads=1 -o "$image"
ls -l "$image"
[ "$(stat -c %s "$image")" -lt 200000 ] || { echo "the image is too large for the repository" >&2; exit 1; }
