#!/usr/bin/env bash
# A volume whose inodes have more than 40 bits, through a mount: the programs that recognise hard links by
# (st_dev, st_ino), and file handles after dropped caches, remounts and a killed daemon.
#
#   scripts/posix/wide_inodes.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
skip_without_mounts
"$pando" format ${PANDO_ENGINE:+--engine "$PANDO_ENGINE"} --inode-home 5 "$volume" >/dev/null
mount_pando
mkdir -p "$mnt/tree/a" "$mnt/tree/b"
for i in $(seq 200); do
  echo "$i" >"$mnt/tree/a/f$i"
  [ $((i % 3)) -ne 0 ] || ln "$mnt/tree/a/f$i" "$mnt/tree/b/l$i"
  [ $((i % 6)) -ne 0 ] || ln "$mnt/tree/a/f$i" "$mnt/tree/b/m$i"
done
"$pando" snapshot create "$mnt/tree" s >/dev/null
"$pando" clone "$mnt/tree" "$mnt/clone" >/dev/null

# Every number is of one file, and a listing, stat and find agree.
numbers() { find "$1" -printf '%i %p\n' | sort; }
[ "$(numbers "$mnt/tree")" = "$(find "$mnt/tree" -print0 | xargs -0 stat -c '%i %n' | sort)" ] || fail "find and stat"
diff <(ls -i "$mnt/tree/a" | awk '{ print $1 }' | sort) <(find "$mnt/tree/a" -mindepth 1 -printf '%i\n' | sort) ||
  fail "a listing shows other numbers"
[ "$(find "$mnt/tree/a" "$mnt/clone/a" -type f -printf '%i\n' | sort -u | wc -l)" = 400 ] || fail "one number, two files"
inode=$(stat -c %i "$mnt/tree/a/f6")
[ "${#inode}" -gt 15 ] || fail "f6 has the narrow number $inode"
[ "$(find "$mnt/tree" -samefile "$mnt/tree/a/f6" | wc -l)" = 3 ] || fail "find -samefile"
[ "$("$pando" find "$mnt/tree" -inum "$inode" | wc -l)" = 3 ] || fail "pando find -inum"
[ "$("$pando" find "$mnt/clone" -inum "$inode" | wc -l)" = 0 ] || fail "pando find -inum in a clone"

links() { (cd "$1" && find . -type f -links +1 -printf '%n %p\n' | sort); }
# same DIRECTORY WHAT: as many links, each to the same contents
same() {
  diff <(links "$mnt/tree") <(links "$1") >/dev/null && diff -r "$mnt/tree" "$1" || fail "$2"
}
cp -a "$mnt/tree" "$mnt/copied"
same "$mnt/copied" "cp -a"
mkdir "$mnt/untarred" "$work/out"
tar -C "$mnt/tree" -cf - . | tar -C "$mnt/untarred" -xf -
same "$mnt/untarred" tar
cp -a "$mnt/tree" "$work/out/tree"
same "$work/out/tree" "cp -a to another file system"
if command -v rsync >/dev/null; then
  rsync -aH "$mnt/tree/" "$mnt/synced/"
  same "$mnt/synced" "rsync -aH"
fi
"$pando" import "$work/out/tree" "$mnt/imported" >/dev/null && same "$mnt/imported" "pando import"

mkdir "$mnt/handles"
timeout 600 python3 scripts/posix/handles.py "$mnt/handles" "$pando" "$volume" "$mnt" || fail "file handles"
timeout 300 "$pando" umount "$mnt" >/dev/null
timeout 600 "$pando" fsck "$volume" >/dev/null || fail "fsck finds something"
