#!/usr/bin/env bash
# pjdfstest (the Rust one, crates.io) on a mounted volume and on ext4 in the same run, as root and as
# an ordinary user. No case may fail, and each that ext4 passes must run and pass here.
#   scripts/posix/pjdfstest.sh [PATTERN...]     only the cases whose names contain a pattern
#   PJDFSTEST_USERS=root                        as these users; otherwise as root and nobody
. "$(dirname "$0")/lib.sh"
skip_without_mounts
# Cases remount the file system, for which mount(8) calls a helper by the type's name. It is
# installed for this run only.
if [ -z "${PANDO_OWN_MOUNTS:-}" ]; then
  trap - EXIT
  rm -rf "$work"
  exec env PANDO_OWN_MOUNTS=1 unshare --mount bash "$0" "$@"
fi
leave_other_mounts
mount --bind "$pando" "$(readlink -f "$(command -v mount.fuse3 || echo /sbin/mount.fuse3)")"
pjdfstest=$tools/bin/pjdfstest
[ -x "$pjdfstest" ] || fail "$pjdfstest is missing: run 'make setup'"

mount_pando suid,dev
mount_ext4 512
mkdir "$work/other"
mount -t tmpfs -o size=16m pando-other "$work/other" || fail "no second file system"
trap 'umount -l "$work/other" 2>/dev/null; clean_up' EXIT

cat > "$work/pjdfstest.toml" <<CONFIGURATION
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
secondary_fs = "$work/other"
[settings]
naptime = 0.02
allow_remount = REMOUNT
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
CONFIGURATION
sed 's/REMOUNT/true/' "$work/pjdfstest.toml" > "$work/remount.toml"
sed -i 's/REMOUNT/false/' "$work/pjdfstest.toml"

# run USER DIRECTORY OUT [PATTERN...]
run() {
  local user=$1 directory=$2 out=$3
  shift 3
  local as=()
  [ "$user" = root ] || as=(setpriv --reuid "$(id -u "$user")" --regid "$(id -g "$user")" --clear-groups)
  mkdir -p "$directory"
  chown "$user" "$directory"
  chmod 755 "$directory"
  # Cases leave files open for writing, after which nothing can be remounted read-only, so cases
  # that remount run in a process of their own.
  (cd "$directory" &&
    timeout 1800 "${as[@]}" "$pjdfstest" -c "$work/pjdfstest.toml" -p "$directory" "$@" || true) \
    2>&1 | grep -v '::erofs_' > "$out.main" || true
  : > "$out.erofs"
  [ $# -gt 0 ] || (cd "$directory" &&
    timeout 1800 "${as[@]}" "$pjdfstest" -c "$work/remount.toml" -p "$directory" erofs || true) \
    > "$out.erofs" 2>&1
  sed -i 's/\x1b\[[0-9;]*m//g' "$out.main" "$out.erofs"
  cat "$out.main" "$out.erofs" > "$out"
  ended "$out.main"
  [ $# -gt 0 ] || ended "$out.erofs"
}

ended() { grep -q '^Summary:' "$1" || { tail -20 "$1" >&2; fail "it did not end ($1)"; }; }

count() { grep -cE "^[a-z_]+::[^ ]* +$2\$" "$1" || true; }
names() { sed -nE "s/^([a-z_]+::[^ ]*) +$2\$/\1/p" "$1" | sort; }

# What the kernel cannot pass, with the reason; anything else must run.
#   link_count_max   pathconf(_PC_LINK_MAX) is answered by libc from the type of the file system,
#                    and of FUSE it knows no limit. The limit itself is tested by limits.sh.
cannot='^link::link_count_max$'

wrong=0
for user in ${PJDFSTEST_USERS:-root nobody}; do
  run "$user" "$mnt/$user" "$work/pando-$user" "$@" &
  ours=$!
  run "$user" "$ext4/$user" "$work/ext4-$user" "$@"
  wait "$ours" || fail "the run as $user did not end"
  for fs in pando ext4; do
    out=$work/$fs-$user
    printf '%s %-6s %-7s %4d passed, %d failed, %d skipped\n' "$suite" "$fs" "$user" \
      "$(count "$out" ok)" "$(count "$out" FAILED)" "$(count "$out" skipped)"
  done
  out=$work/pando-$user
  if [ "$(count "$out" FAILED)" -gt 0 ]; then
    grep -A3 'FAILED$' "$out" >&2
    wrong=1
  fi
  # Failed, skipped or not even started.
  less=$(comm -23 <(names "$work/ext4-$user" ok) <(names "$out" ok) | grep -v "$cannot" || true)
  if [ -n "$less" ]; then
    echo "$suite: passed on ext4 and not here (as $user):" >&2
    echo "$less" >&2
    wrong=1
  fi
  [ "$(count "$out" ok)" -gt 0 ] || fail "nothing ran as $user"
done
[ "$wrong" -eq 0 ] || fail "the file system differs from POSIX"
