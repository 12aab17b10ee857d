#!/usr/bin/env bash
# The trash on a mount: what rm, rmdir, a rename and a program remove is kept in `.trash` with its
# shape and its owners, and is restored as it was; ordinary users see and restore their own; what is
# removed in the trash is deleted; the volume is clean after it.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
skip_without_mounts
mount_pando

as() { local user=$1; shift; setpriv --reuid="$user" --regid="$user" --clear-groups "$@"; }

# tree DIRECTORY: everything below except directories' sizes, with checksums and hard links
tree() {
  (cd "$1" && find . -not -path './.trash*' -printf '%P %y %m %U:%G %l %n ' \
    \( -type d -printf '\n' -o -printf '%s %T@\n' \) | sort
    find . -type f -not -path './.trash*' -exec sha256sum {} + | sort -k2
    find . -type f -links +1 -not -path './.trash*' -printf '%i %P\n' | sort -k2 |
      awk '{ if (!($1 in n)) n[$1] = ++c; print n[$1], $2 }'
    find . -not -path './.trash*' -exec getfattr -hd -m user. {} + 2>/dev/null | sort)
}

# What is removed within an hour is stored together; here everything is, tree by tree.
left=$((3600 - $(date +%s) % 3600))
[ "$left" -gt 60 ] || sleep "$left"
"$pando" trash on "$mnt" --keep 1d >/dev/null
mkdir -m 755 "$mnt/home"
mkdir -m 700 "$mnt/home/ada"
chown 4001:4001 "$mnt/home/ada"
as 4001 bash -c "cd '$mnt/home/ada' && mkdir -p project/src/deep project/empty &&
  for n in 1 2 3 4 5; do head -c \$((n * n * n * 700)) /dev/urandom >project/src/f\$n; done &&
  ln project/src/f1 project/linked && ln -s ../nowhere project/src/link && chmod 4750 project/src/f2 &&
  mkfifo project/src/deep/fifo && setfattr -n user.note -v kept project/src/f3 && touch -d 2020-01-02 project/src/f4"
before=$(tree "$mnt/home/ada/project")

as 4001 rm -rf "$mnt/home/ada/project"
[ ! -e "$mnt/home/ada/project" ] || fail "rm -rf leaves something"
kept=("$mnt"/.trash/*/home/ada/project/src/f1)
[ -e "${kept[0]}" ] || fail "what was removed is not below .trash"
as 4002 ls "$mnt"/.trash/*/home/ada 2>/dev/null && fail "another user looks into the trash of a closed directory"
as 4001 touch "$(dirname "${kept[0]}")/new" 2>/dev/null && fail "something is made in the trash"
as 4002 "$pando" restore "$mnt/home/ada/project" >/dev/null 2>&1 && fail "another user restores"
as 4001 "$pando" restore "$mnt/home/ada/project" >/dev/null || fail "its owner does not restore"
[ "$(tree "$mnt/home/ada/project")" = "$before" ] || {
  diff <(echo "$before") <(tree "$mnt/home/ada/project") >&2 || true
  fail "what was restored is not what was removed"
}
"$pando" restore "$mnt/home/ada/project/src/f1" >/dev/null 2>&1 && fail "a file that is there is restored"

# What is removed after a directory was closed is closed; the mode of its removal is what counts.
as 4001 bash -c "cd '$mnt/home/ada' && mkdir -m 755 shut && echo 1 >shut/open && echo 2 >shut/closed"
chmod 755 "$mnt/home/ada"
as 4001 bash -c "rm '$mnt/home/ada/shut/open' && chmod 700 '$mnt/home/ada/shut' && rm '$mnt/home/ada/shut/closed'"
as 4002 cat "$mnt"/.trash/*/home/ada/shut/open >/dev/null || fail "what was open is not"
for closed in "$mnt"/.trash/*/home/ada/shut/closed; do
  [ "$(cat "$closed")" = 2 ] || fail "what was removed of a closed directory is not there"
  as 4002 cat "$closed" >/dev/null 2>&1 && fail "another user reads what was removed of a closed directory"
done
as 4002 "$pando" restore "$mnt/home/ada/shut/closed" >/dev/null 2>&1 && fail "another user restores from there"
as 4001 "$pando" restore "$mnt/home/ada/shut/closed" >/dev/null || fail "its owner does not restore from there"
as 4001 rm -rf "$mnt/home/ada/shut"
chmod 700 "$mnt/home/ada"

# No user creates a trash, and a request for too much space deletes none.
mkdir -m 777 "$mnt/open" && as 4001 "$pando" subvolume create "$mnt/open/s" >/dev/null 2>&1 &&
  as 4001 bash -c "mkdir -p '$mnt/open/s/t/1969-01-01T-9223372036854775808' && mv -T '$mnt/open/s/t' '$mnt/open/s/.trash'" \
    2>/dev/null && fail "a directory is renamed to a trash"
as 4001 bash -c "fallocate -l 1T '$mnt/home/ada/much'" 2>/dev/null && fail "more is allocated than there is"
as 4001 cat "$mnt"/.trash/*/home/ada/shut/open >/dev/null || fail "asking for space deletes the trash"

# The same by one call, and to another place.
"$pando" rmr "$mnt/home/ada/project" >/dev/null
[ ! -e "$mnt/home/ada/project" ] || fail "rmr leaves something"
"$pando" restore "$mnt/home/ada/project" --to "$mnt/home/ada/again" >/dev/null || fail "restore --to"
[ "$(tree "$mnt/home/ada/again")" = "$before" ] || fail "what rmr removed is not what came back"

# Every version of a file that an editor replaces.
cd "$mnt"
for n in 1 2 3 4; do echo "version $n" >new && mv new file; done
[ "$("$pando" restore --list "$mnt/file" | wc -l)" = 3 ] || fail "not every version is listed"
rm file
for n in 4 3 2 1; do
  "$pando" restore "$mnt/file" >/dev/null || fail "version $n"
  [ "$(cat file)" = "version $n" ] || fail "not version $n: $(cat file)"
  mv file "taken$n"
done
"$pando" restore "$mnt/file" >/dev/null 2>&1 && fail "more versions than there were"

# A program that holds removed files, and git, continue.
exec 9<>held && echo text >&9 && rm held && echo more >&9 && exec 9>&-
"$pando" restore "$mnt/held" >/dev/null && [ "$(wc -l <held)" = 2 ] || fail "a file that was open"
command -v git >/dev/null || fail "git is not installed: make setup"
(
  git init -q repository && cd repository && git config user.email a@b && git config user.name a || exit 1
  for n in 1 2 3 4 5 6; do echo "$n" >"f$n" && git add . && git commit -qm "$n" || exit 1; done
  git gc -q && git fsck --strict 2>/dev/null && git checkout -q HEAD~2 && git checkout -q -
) || fail "git in a directory with a trash"

# The daemon of the mount deletes hours older than the retention; the present one is kept, however
# short the retention is. (An hour of years ago is made while there is no trash yet.)
as 4001 mkdir "$mnt/home/ada/brief"
as 4001 mkdir -p "$mnt/home/ada/brief/.trash/2020-01-01T00/way" "$mnt/home/ada/brief/.trash/2020-01-01T01"
as 4001 bash -c "echo old >'$mnt/home/ada/brief/.trash/2020-01-01T00/way/file'"
"$pando" trash on "$mnt/home/ada/brief" --keep 1s >/dev/null
as 4001 bash -c "echo new >'$mnt/home/ada/brief/file' && rm '$mnt/home/ada/brief/file'"
for _ in $(seq 1200); do
  [ -e "$mnt/home/ada/brief/.trash/2020-01-01T00" ] || [ -e "$mnt/home/ada/brief/.trash/2020-01-01T01" ] || break
  sleep 0.1
done
[ ! -e "$mnt/home/ada/brief/.trash/2020-01-01T00" ] || fail "what is older than it is kept is there for ever"
as 4001 "$pando" restore "$mnt/home/ada/brief/file" >/dev/null || fail "the present hour is not kept"

# In the trash, what is removed is deleted.
rm -rf "$mnt/.trash" || fail "the trash cannot be removed"
"$pando" restore "$mnt/home/ada/project" >/dev/null 2>&1 && fail "what was deleted comes back"
echo text >last && rm last && "$pando" trash empty "$mnt" >/dev/null
left=$("$pando" trash list "$mnt" --json) || fail "the empty trash cannot be listed"
[[ $left != *path* ]] || fail "the trash is not empty"
"$pando" trash off "$mnt" >/dev/null
echo text >last && rm last
"$pando" restore "$mnt/last" >/dev/null 2>&1 && fail "there is no trash any more"
cd /
"$pando" umount "$mnt" >/dev/null
"$pando" fsck "$volume" >/dev/null || fail "the volume is not clean"
echo "trash: rm, rmr, renames and git on a mount with a trash: all came back"
