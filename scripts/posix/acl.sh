#!/usr/bin/env bash
# POSIX access control lists through the mount, beside ext4: random calls by root and by ordinary
# users with the same results and the same lists after them; setfacl and getfacl; copies by tar,
# rsync and cp; a list that the command line or a snapshot changes is visible at once.
#
#   scripts/posix/acl.sh [CALLS [SEED]]
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
skip_without_mounts
for program in setfacl getfacl tar rsync python3; do
  command -v "$program" >/dev/null || fail "$program is not installed: make setup"
done
calls=${1:-4000}
seed=${2:-$(date +%s)}
repository=$PWD

mount_pando
mount_ext4 256

chmod 777 "$mnt" "$ext4"
mkdir "$mnt/random" "$ext4/random"
python3 "$repository/scripts/posix/acl.py" "$mnt/random" "$ext4/random" "$seed" "$calls" || fail "random calls"

# as USER COMMAND: as an ordinary user with a group of its own
as() { local user=$1; shift; setpriv --reuid="$user" --regid="$user" --clear-groups "$@"; }

# lists DIRECTORY: all lists below, as getfacl prints them
lists() { (cd "$1" && getfacl --recursive --numeric --physical . | sort); }

for root in "$mnt" "$ext4"; do
  as 4001 mkdir "$root/tools"
  cd "$root/tools"
  as 4001 mkdir dir 'odd name'
  as 4001 setfacl -m u:4002:rwx,g:4003:rx,d:u:4002:rwX,d:m::rwx,d:o::- dir
  as 4001 sh -c 'umask 077; echo text >dir/file; mkdir dir/sub; echo more >dir/sub/deep'
  as 4002 sh -c 'echo by another >>dir/file; echo new >dir/theirs'
  as 4003 test -r dir/file && fail "a user that no list names reads $root/tools/dir/file"
  as 4002 setfacl -m o::r dir/file 2>/dev/null && fail "who is not the owner sets a list"
  as 4001 setfacl -m u:4003:r dir/file
  as 4003 cat dir/file >/dev/null || fail "a list is not asked at once: $root"
  as 4001 setfacl -x u:4003 dir/file
  as 4003 cat dir/file >/dev/null 2>&1 && fail "a removed entry still counts: $root"
  as 4001 chmod g-x dir/sub
  as 4001 setfacl -k dir/sub
  as 4001 setfacl -m u:4002:r 'odd name'
  as 4001 setfacl -b 'odd name'
  cp -a dir copied
  cp dir/file plain
  tar --acls -cf lists.tar dir && mkdir untarred && tar --acls -xpf lists.tar -C untarred
  rsync -aA dir/ synced/
  getfacl --recursive --numeric dir >restore.acl
  setfacl --recursive -b synced
  (mkdir elsewhere && rsync -a dir elsewhere && cd elsewhere && setfacl --restore=../restore.acl)
  rm lists.tar restore.acl
  for copy in copied untarred/dir elsewhere/dir; do
    [ "$(lists dir)" = "$(lists "$copy")" ] || fail "$root: $copy has other lists than dir"
  done
  cd /
done
[ "$(lists "$mnt/tools")" = "$(lists "$ext4/tools")" ] || {
  diff <(lists "$mnt/tools") <(lists "$ext4/tools") >&2 || true
  fail "lists differ from those of ext4"
}
[ "$(lists "$mnt/random")" = "$(lists "$ext4/random")" ] || fail "getfacl prints something else than on ext4"

# A roll-back changes lists behind the kernel's back.
as 4001 mkdir "$mnt/rolled"
as 4001 sh -c "echo text >'$mnt/rolled/file'; chmod 600 '$mnt/rolled/file'"
"$pando" snapshot create "$mnt/rolled" before >/dev/null
as 4001 setfacl -m u:4002:r "$mnt/rolled/file"
as 4002 cat "$mnt/rolled/file" >/dev/null || fail "the list is not asked"
"$pando" rollback "$mnt/rolled" before >/dev/null
as 4002 cat "$mnt/rolled/file" >/dev/null 2>&1 && fail "the list outlives the roll-back"

# The program's own answers: `find` shows no more than the lists allow.
as 4001 mkdir "$mnt/closed"
as 4001 sh -c "echo text >'$mnt/closed/inside'; chmod 700 '$mnt/closed'"
seen() { as "$1" "$pando" find "$mnt/closed" -name inside 2>/dev/null | wc -l; }
[ "$(seen 4001)" = 1 ] && [ "$(seen 4002)" = 0 ] || fail "find without a list"
as 4001 setfacl -m u:4002:rx "$mnt/closed"
[ "$(seen 4002)" = 1 ] && [ "$(seen 4003)" = 0 ] || fail "find with a list"
as 4001 setfacl -m m::- "$mnt/closed"
[ "$(seen 4002)" = 0 ] || fail "find with a mask"

# The directory of snapshots admits the users that its directory's list admits, and nobody else.
as 4001 mkdir "$mnt/kept"
"$pando" snapshot create "$mnt/kept" before >/dev/null
as 4001 setfacl -m u::rwx,u:4002:rwx,g::--x,m::rwx,o::- "$mnt/kept"
[ "$(as 4002 ls "$mnt/kept/.snapshots")" = before ] || fail "a named user does not see the snapshots"
as 4002 mkdir "$mnt/kept/.snapshots/other" 2>/dev/null && fail "a named user takes a snapshot"
as 4003 ls "$mnt/kept/.snapshots" 2>/dev/null && fail "others see the snapshots"
getfacl --omit-header "$mnt/kept/.snapshots" 2>/dev/null | grep -q '^mask::r-x' || fail "the mask of .snapshots"
"$pando" umount "$mnt" >/dev/null
"$pando" fsck "$volume" >"$work/fsck.log" 2>&1 || { cat "$work/fsck.log" >&2; fail "the volume is not well"; }
echo "acl: $calls random calls (seed $seed), setfacl, tar, rsync and cp beside ext4: alike"
