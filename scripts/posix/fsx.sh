#!/usr/bin/env bash
# fsx (crates.io, by the author of the Rust pjdfstest) on a mounted volume: random reads, writes,
# maps, truncations, holes and copies of one file, each read compared with what it must be. Two of
# the four files are an ordinary user's.
#   scripts/posix/fsx.sh [SECONDS [SEED]]     60 seconds; seeds from the clock, each one printed
. "$(dirname "$0")/lib.sh"
skip_without_mounts
fsx=$tools/bin/fsx
[ -x "$fsx" ] || fail "$fsx is missing: run 'make setup'"
seconds=${1:-60}
seed=${2:-$(date +%s)}

mount_pando suid,dev
# Small files are stored in the tree, larger ones in extents, and the border is crossed often.
shape() { # FILE FLEN OPSIZE_MAX ALIGN WEIGHT_OF_POSIX_FALLOCATE
  cat > "$1" <<CONFIGURATION
flen = $2
[opsize]
max = $3
align = $4
[weights]
close_open = 1
invalidate = 1
mapread = 5
mapwrite = 5
read = 10
write = 10
truncate = 4
fsync = 0.5
fdatasync = 0.5
posix_fallocate = $5
punch_hole = 4
sendfile = 2
posix_fadvise = 1
copy_file_range = 4
CONFIGURATION
}
shape "$work/tiny.toml" 12000 3000 1 2
shape "$work/middle.toml" 262144 65536 1 2
shape "$work/large.toml" 16777216 1048576 1 2
# (With an alignment fsx allocates 0 bytes at times, which is an error everywhere.)
shape "$work/pages.toml" 4194304 262144 4096 0

# Until the time is over, which `timeout` reports with 124.
exercise() { # NAME SEED
  local name=$1 seed=$2 end=$((SECONDS + seconds)) code as=()
  case $name in
    middle | pages) as=(setpriv --reuid nobody --regid nogroup --clear-groups) ;;
  esac
  while :; do
    [ "$SECONDS" -lt "$end" ] || return 124
    code=0
    echo "$seed" > "$work/$name.seed"
    (cd "$mnt/$name" && exec timeout $((end - SECONDS)) "${as[@]}" "$fsx" -q -S "$seed" -P "$work/$name" \
      -f "$work/$name.toml" "$mnt/$name/file") > "$work/$name.log" 2>&1 || code=$?
    # fsx seldom allocates 0 bytes without an alignment too: continues with another seed.
    [ "$code" -ne 124 ] && tail -1 "$work/$name.log" | grep -q 'POSIX_FALLOCATE.*( *0x0 bytes)' || return "$code"
    seed=$((seed + 1000))
    echo "fsx $name: it allocated 0 bytes; seed $seed now"
  done
}

running=()
for name in tiny middle large pages; do
  mkdir "$mnt/$name" "$work/$name"
  chmod 777 "$mnt/$name" "$work/$name"
  echo "$suite $name: seed $seed, $seconds s"
  exercise "$name" "$seed" &
  running+=("$name:$!")
  seed=$((seed + 1))
done
# Meanwhile the namespace changes: snapshots share what the files change.
end=$((SECONDS + seconds - 1))
snapshots=0
while [ "$SECONDS" -lt "$end" ]; do
  sleep 0.3
  mkdir "$mnt/tiny/.snapshots/s$snapshots" "$mnt/large/.snapshots/s$snapshots"
  [ "$snapshots" -lt 3 ] || rmdir "$mnt/large/.snapshots/s$((snapshots - 3))"
  snapshots=$((snapshots + 1))
done
wrong=0
for one in "${running[@]}"; do
  IFS=: read -r name pid <<< "$one"
  code=0
  wait "$pid" || code=$?
  # It changes the file all the time: an idle one hung, and has shown nothing.
  rested=$(($(date +%s) - $(stat -c %Y "$mnt/$name/file" 2>/dev/null || echo 0)))
  if [ "$rested" -gt 20 ]; then
    wrong=1
    echo "fsx $name has not changed its file for $rested s" >&2
  fi
  # 124: it ran until its time was over.
  if [ "$code" -ne 124 ]; then
    wrong=1
    echo "fsx $name failed (code $code); again with: fsx -S $(cat "$work/$name.seed") -f $name.toml" >&2
    cat "$work/$name.toml" >&2
    tail -40 "$work/$name.log" >&2
  fi
done
[ "$wrong" -eq 0 ] || fail "a file did not read as it was written"
"$pando" umount "$mnt" > /dev/null
"$pando" fsck "$volume" > "$work/fsck.log" 2>&1 || { cat "$work/fsck.log" >&2; fail "the volume is not well"; }
echo "$suite: ${#running[@]} files for $seconds s beside $snapshots snapshots, and fsck finds the volume well"
