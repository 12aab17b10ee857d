#!/usr/bin/env bash
# The recipes of docs/guide/backup.md, run with restic, borg, rsync, and archivers: nothing of an
# unchanged tree is read again; clones that are excluded are not copied; stores into a map that the
# kernel has not written yet are copied. A
# missing program fails the suite, unless SKIP_BACKUP gives a reason.
#   scripts/posix/backup.sh [quick]     quick, as `make test` runs it: without the archivers, and
#                                       bsdtar need not be there
. "$(dirname "$0")/lib.sh"
skip_without_mounts
programs=(restic borg rsync)
[ "${1:-}" = quick ] || programs+=(bsdtar)
for program in "${programs[@]}"; do
  command -v "$program" >/dev/null && continue
  not_tested backup "$program is not installed" SKIP_BACKUP
  exit 0
done
export HOME=$work/home RESTIC_PASSWORD=none RESTIC_CACHE_DIR=$work/home/cache BORG_BASE_DIR=$work/home
export BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes
mkdir "$HOME"
project=$mnt/project
bk=$project/.snapshots/bk

# is WHAT EXPECTED FOUND
is() { [ "$2" = "$3" ] || fail "$1: $3, and not $2"; }

# read_again restic|borg OPTION...: files that a run on a fresh snapshot considers changed
read_again() {
  local program=$1
  shift
  "$pando" snapshot create "$project" bk >/dev/null
  case $program in
    restic) (cd "$bk" && restic -r "$work/restic" backup "$@" .) |
      awk '/^Files:/ { print $2 + $4 }' ;;
    borg) (cd "$bk" && borg create "$@" --list --filter=AM "$work/borg::{now:%s.%f}" . 2>&1) |
      awk '/^[AM] / && $2 != "." { n++ } END { print n + 0 }' ;;
  esac
  "$pando" snapshot delete "$project" bk >/dev/null
}

mount_pando
mkdir "$project" "$project/sub"
for n in $(seq 20); do head -c "$((n * 3000))" /dev/urandom > "$project/sub/$n"; done
ln "$project/sub/20" "$project/hard"
restic init -q -r "$work/restic" >/dev/null
borg init -e none "$work/borg"
# (borg keeps no state of files that are as young as the newest: it reads those again.)
sleep 1.1
touch "$project/last"

is "restic's first run" 22 "$(read_again restic --ignore-inode)"
is "restic --ignore-inode" 0 "$(read_again restic --ignore-inode)"
read_again borg --files-cache=ctime,size >/dev/null
again=$(read_again borg --files-cache=ctime,size)
[ "$again" -le 1 ] || fail "borg --files-cache=ctime,size reads $again files again"
again=$(read_again restic)
[ "$again" -ge 20 ] || fail "restic reads $again files again, against docs/guide/backup.md: no option is needed"

"$pando" umount "$mnt" >/dev/null
mount_pando snapshot-inodes=alike
read_again restic >/dev/null
is "restic with alike numbers" 0 "$(read_again restic)"
read_again borg >/dev/null
again=$(read_again borg)
[ "$again" -le 1 ] || fail "borg with alike numbers reads $again files again"

"$pando" snapshot create "$project" bk >/dev/null
rsync -aHAX --delete "$bk/" "$work/rsync/"
diff -r "$bk" "$work/rsync" || fail "rsync copied something else"
is "the names of a file after rsync" 2 "$(stat -c %h "$work/rsync/hard")"
is "what rsync copies again" "" "$(rsync -aHAXi --delete "$bk/" "$work/rsync/")"
cp -a "$bk/sub/1" "$project/sub/1" || fail "a file of a snapshot is taken for the one of the live tree"
"$pando" snapshot delete "$project" bk >/dev/null

# Clones in one directory, which each program excludes: of the live tree, and of a snapshot. A clone
# elsewhere is copied.
"$pando" subvolume create "$mnt/clones" >/dev/null
"$pando" clone "$project" "$mnt/clones/excluded" >/dev/null
"$pando" clone "$project" "$mnt/copied" >/dev/null
# copied WHAT: standard input has the names of a copy
copied() {
  local names
  names=$(cat)
  grep -q 'copied/sub/20$' <<< "$names" || fail "$1 lacks what is beside the clones"
  ! grep 'excluded' <<< "$names" || fail "$1 has a clone that is excluded"
}
"$pando" snapshot create "$mnt" bk >/dev/null
for tree in "$mnt" "$mnt/.snapshots/bk"; do
  rm -rf "$work/rsync"
  rsync -aHAX --exclude=/clones/ "$tree/" "$work/rsync/"
  find "$work/rsync" | copied "rsync --exclude of $tree"
  (cd "$tree" && restic -q -r "$work/restic" backup --ignore-inode --exclude "$tree/clones" --tag clones .)
  restic -q -r "$work/restic" ls --tag clones latest | copied "restic --exclude of $tree"
  (cd "$tree" && borg create --exclude 'clones/*' "$work/borg::clones-{now:%s.%f}" .)
done
for archive in $(borg list --short -P clones- "$work/borg"); do
  borg list --short "$work/borg::$archive" | copied "borg --exclude"
done
"$pando" snapshot delete "$mnt" bk >/dev/null

if [ "${1:-}" = quick ]; then
  echo "backup: restic, borg and rsync copy what there is but excluded clones, and read nothing twice"
  exit 0
fi
# The map stays while the archivers run.
python3 - "$project/sparse" <<'PYTHON'
import mmap, os, subprocess, sys
path, size = sys.argv[1], 64 << 20
fd = os.open(path, os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, size)
memory = mmap.mmap(fd, size)
os.mkdir(os.path.join(os.path.dirname(path), "out"))
for n, copy in enumerate(["cp --sparse=always --reflink=never sparse copy",
                          "{ tar -cSf archive sparse || [ $? = 1 ]; } && tar -xSOf archive > copy",
                          "bsdtar --read-sparse -cf archive sparse && bsdtar -xf archive -C out && mv out/sparse copy",
                          "rm copy && rsync -S sparse copy"]):
    memory[n * (9 << 20):n * (9 << 20) + 4096] = bytes([n + 1]) * 4096
    subprocess.run(copy, shell=True, check=True, cwd=os.path.dirname(path))
    with open(os.path.join(os.path.dirname(path), "copy"), "rb") as copied:
        if copied.read() != memory[:]:
            sys.exit(f"backup: {copy}: copied something else")
PYTHON
echo "backup: restic, borg, rsync and archivers copy what there is, and read nothing twice"
