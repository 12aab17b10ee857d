#!/usr/bin/env bash
# Common programs on a mounted volume, each with its own check: git and git fsck; tar and rsync
# there and back, compared by checksum with hard links, sparse files, extended attributes and
# owners; SQLite under kill -9 with its own check; cargo build; sort, sed -i, find -delete, writers
# through maps; locks, leases of names, holes, copies, files without names; the disk space of
# copies, totals of directories.
# Each as root, and then as an ordinary user in a directory of its own.
#   scripts/posix/programs.sh [NAME...]      only these parts
#   PROGRAMS_USERS=root                      as these users; otherwise as root and nobody
#   PROGRAMS_OF_OTHERS="git calls"           all parts as root, and only these as another user
#   SQLITE_ROUNDS="2 3"                      of 1 to 4 as root: in 3 and 4 the daemon is killed, not the writer
. "$(dirname "$0")/lib.sh"
skip_without_mounts
mount_pando suid,dev
repository=$PWD
# Sources to copy, in a place that every user may read.
cp -r "$repository/crates/ops/src/posix" "$work/sources"
for script in calls coherence atime totals extents handles; do
  cp "$repository/scripts/posix/$script.py" "$work"
done
chmod -R a+rX "$work/sources" "$work"/*.py

is_root() { [ "$(id -u)" -eq 0 ]; }

same() { cmp -s "$1" "$2" || { diff "$1" "$2" | head -20 >&2; fail "$3"; }; }

# list DIRECTORY: everything that a copy must keep, a line a file; hard links by their first name
list() {
  (cd "$1" && python3 - <<'PYTHON'
import hashlib, os, stat
first = {}
for top, directories, files in os.walk("."):
    directories.sort()
    for name in sorted(directories + files):
        path = os.path.join(top, name)
        s = os.lstat(path)
        what = ""
        if stat.S_ISREG(s.st_mode):
            what = hashlib.sha256(open(path, "rb").read()).hexdigest()
        elif stat.S_ISLNK(s.st_mode):
            what = os.readlink(path)
        elif stat.S_ISBLK(s.st_mode) or stat.S_ISCHR(s.st_mode):
            what = str(s.st_rdev)
        link = first.setdefault(s.st_ino, path) if not stat.S_ISDIR(s.st_mode) else ""
        names = os.listxattr(path, follow_symlinks=False)
        x = [(n, os.getxattr(path, n, follow_symlinks=False)) for n in sorted(names)]
        size = 0 if stat.S_ISDIR(s.st_mode) else s.st_size
        print(path, oct(s.st_mode), s.st_uid, s.st_gid, size, s.st_mtime_ns // 1000, link, x, what)
PYTHON
  )
}

# a tree with everything that tar and rsync can carry
tree() {
  mkdir -p "$1/a/b/c" "$1/empty"
  cp "$sources"/*.rs "$1/a"
  printf 'small' > "$1/a/b/small"
  ln "$1/a/b/small" "$1/a/b/c/again"
  ln "$1/a/b/small" "$1/third"
  ln -s ../b/small "$1/a/link"
  ln -s nowhere "$1/a/dangling"
  dd if=/dev/urandom of="$1/a/sparse" bs=4096 count=3 seek=2000 status=none
  dd if=/dev/urandom of="$1/a/sparse" bs=4096 count=1 seek=100 conv=notrunc status=none
  truncate -s 20M "$1/a/sparse"
  dd if=/dev/urandom of="$1/large" bs=1M count=5 status=none
  mkfifo "$1/fifo"
  if is_root; then
    mknod "$1/null" c 1 3
    chown 1234:4321 "$1/a/b/small" "$1/empty"
    chown -h 77:88 "$1/a/link"
    setfattr -n trusted.note -v root "$1/large"
  fi
  chmod 4755 "$1/a/access.rs"
  chmod 1777 "$1/empty"
  setfattr -n user.note -v 'a value' "$1/a/b"
  setfattr -n user.note -v 'of a file' "$1/a/b/small"
  touch -d '1969-07-20 20:17:40.123456789' "$1/a/b/c"
  touch -h -d '2001-02-03 04:05:06' "$1/a/dangling"
}

part_archives() {
  tree "$work/source"
  list "$work/source" > "$work/source.list"
  mkdir "$mnt/tar" "$work/back"
  tar -C "$work/source" -cf - --xattrs --xattrs-include='*' --sparse . |
    tar -C "$mnt/tar" -xpf - --xattrs --xattrs-include='*'
  list "$mnt/tar" > "$work/tar.list"
  same "$work/source.list" "$work/tar.list" "tar into the volume"
  tar -C "$mnt/tar" -cf - --xattrs --xattrs-include='*' --sparse . |
    tar -C "$work/back" -xpf - --xattrs --xattrs-include='*'
  list "$work/back" > "$work/back.list"
  same "$work/source.list" "$work/back.list" "tar out of the volume"
  local blocks
  blocks=$(stat -c %b "$mnt/tar/a/sparse")
  [ "$blocks" -lt 200 ] || fail "a sparse file takes $blocks blocks"
  rsync -aHAXS --modify-window=-1 --numeric-ids "$work/source/" "$mnt/rsync/"
  list "$mnt/rsync" > "$work/rsync.list"
  same "$work/source.list" "$work/rsync.list" "rsync into the volume"
  rsync -aHAX --modify-window=-1 --numeric-ids --delete "$mnt/rsync/" "$work/back/"
  list "$work/back" > "$work/back.list"
  same "$work/source.list" "$work/back.list" "rsync out of the volume"
  local changes
  changes=$(rsync -aHAXi --modify-window=-1 --numeric-ids --checksum --dry-run --delete "$mnt/rsync/" "$mnt/tar/" | head)
  [ -z "$changes" ] || fail "rsync sees differences: $changes"
  cp -a "$mnt/tar" "$mnt/copy"
  list "$mnt/copy" > "$work/copy.list"
  same "$work/source.list" "$work/copy.list" "cp -a within the volume"
}

part_git() {
  # On a busy machine git would report progress among what it finds.
  export GIT_PROGRESS_DELAY=1000000
  git -C "$work" init -q origin
  (cd "$work/origin" && git config user.email a@b && git config user.name a &&
    for n in 1 2 3; do
      cp "$sources"/*.rs . && echo "$n" > n && git add . && git commit -qm "$n"
    done)
  git clone -q "$work/origin" "$mnt/clone"
  git clone -q --no-hardlinks "$mnt/clone" "$mnt/again"
  git clone -q "$mnt/clone" "$mnt/linked"
  for clone in clone again linked; do
    (cd "$mnt/$clone" && git config user.email a@b && git config user.name a &&
      git checkout -q -b topic && sed -i 's/fn /fn  /' ./*.rs && git commit -qam edit &&
      git checkout -q - && git merge -q topic && git gc -q --prune=now &&
      git fsck --full --strict && git status --porcelain) > "$work/git.out" 2>&1 ||
      { cat "$work/git.out" >&2; fail "git in $clone"; }
    ! grep -v '^$' "$work/git.out" | grep -q . || { cat "$work/git.out" >&2; fail "git fsck"; }
  done
}

part_sqlite() {
  cat > "$work/writer.py" <<'PYTHON'
import os, sqlite3, sys, random
directory = os.open(os.path.dirname(sys.argv[1]), os.O_RDONLY | os.O_DIRECTORY)
db = sqlite3.connect(sys.argv[1], timeout=20, isolation_level=None)
db.execute("pragma journal_mode=" + sys.argv[2])
db.execute("create table if not exists t(k integer primary key, v blob, s integer)")
n = db.execute("select coalesce(max(k), 0) from t").fetchone()[0]
while True:
    db.execute("begin immediate")
    for _ in range(20):
        n += 1
        db.execute("insert into t values(?, randomblob(?), ?)", (n, random.randrange(3000), n))
    db.execute("commit")
    # Removing the journal is the commit, and SQLite either does not sync the directory after it, or
    # treats one that it cannot open as synced.
    os.fsync(directory)
    print(n, flush=True)
PYTHON
  local round mode last kept pid
  for mode in delete wal; do
    for round in $sqlite_rounds; do
      # Before it starts: the rows that the previous round acknowledged are not waited for.
      : > "$work/acknowledged"
      python3 "$work/writer.py" "$mnt/$mode.db" $mode > "$work/acknowledged" 2> "$work/writer.log" &
      writer=$!
      # It dies at work, however long a busy machine takes to start it.
      waited=0
      until [ -s "$work/acknowledged" ]; do
        kill -0 "$writer" 2>/dev/null || { cat "$work/writer.log" >&2; fail "SQLite's writer has ended"; }
        waited=$((waited + 1))
        [ "$waited" -le 1200 ] || fail "SQLite's writer commits nothing"
        sleep 0.1
      done
      sleep 0.6
      if [ "$round" -le 2 ]; then
        kill -9 "$writer"
      else
        # The daemon of the volume dies, and its writer with it.
        pid=$("$pando" status --json "$volume" | tr ',{}' '\n\n\n' | sed -n 's/^ *"pid": *\([0-9][0-9]*\).*/\1/p' | head -1)
        kill -9 "$pid"
      fi
      { wait "$writer" || true; } 2>/dev/null
      if [ "$round" -gt 2 ]; then
        umount -l "$mnt"
        mount_pando suid,dev
      fi
      last=$(tail -1 "$work/acknowledged")
      kept=$(sqlite3 "$mnt/$mode.db" 'select max(k) from t')
      [ "$(sqlite3 "$mnt/$mode.db" 'pragma integrity_check')" = ok ] || fail "SQLite ($mode) is damaged"
      [ "${kept:-0}" -ge "${last:-0}" ] || fail "SQLite ($mode) acknowledged $last and kept $kept"
      [ "$(sqlite3 "$mnt/$mode.db" 'select count(*) = max(k) from t')" = 1 ] || fail "rows are missing"
    done
  done
}

# An ordinary user may have no access to the toolchain, so it is shown elsewhere meanwhile: in a
# mount namespace that nobody else sees, because clean-up removes what is there.
cargo_as_nobody() {
  local toolchain
  toolchain=$(rustc --print sysroot 2>/dev/null) && [ -x "$toolchain/bin/cargo" ] || {
    not_tested "cargo as nobody" "rustc knows no toolchain" SKIP_CARGO
    return
  }
  mkdir "$work/toolchain"
  unshare --mount bash -c "$(declare -f leave_other_mounts)"'
    leave_other_mounts "$3"
    mount --bind -o ro "$1" "$2" && shift 3 && "$@"' bash "$toolchain" "$work/toolchain" "$mnt" \
    "${as_nobody[@]}" PATH="$work/toolchain/bin:$PATH" cargo=cargo bash -c "$definitions; part_cargo"
}

part_cargo() {
  mkdir -p "$mnt/hello/src"
  printf '[package]\nname = "hello"\nversion = "0.1.0"\nedition = "2021"\n[workspace]\n' > "$mnt/hello/Cargo.toml"
  echo 'fn main() { println!("{}", (1..=10u64).product::<u64>()); }' > "$mnt/hello/src/main.rs"
  (cd "$mnt/hello" && unset CARGO_TARGET_DIR RUSTFLAGS && $cargo build --quiet --offline &&
    [ "$(./target/debug/hello)" = 3628800 ] && echo '// changed' >> src/main.rs &&
    $cargo build --quiet --offline && $cargo clean --quiet --offline) || fail "cargo build"
}

part_tools() {
  mkdir "$mnt/tools" && cd "$mnt/tools"
  seq 200000 | shuf > numbers
  sort -n -S 1M -T . -o numbers numbers
  seq 200000 | cmp -s - numbers || fail "sort"
  sed -i 's/^1$/one/' numbers
  [ "$(head -1 numbers)" = one ] || fail "sed -i"
  mkdir -p many && (cd many && seq 3000 | xargs touch && seq -f 'd%g/e/fx' 100 | xargs mkdir -p)
  find many -type f -name '*7' -delete
  [ -z "$(find many -type f -name '*7')" ] || fail "find -delete"
  find many -delete
  [ ! -e many ] || fail "find -delete leaves something"
  head -c 262144 /dev/urandom > random
  dd if=random of=direct bs=4096 oflag=direct status=none
  dd if=direct iflag=direct bs=65536 status=none | cmp -s - random || fail O_DIRECT
  cmp -s direct random || fail "O_DIRECT, read through the cache"
  cd "$repository"
}

part_calls() { python3 "$scripts/calls.py" "$mnt" || fail "system calls"; }

part_coherence() { python3 "$scripts/coherence.py" "$mnt" "$pando" || fail "coherence"; }

part_totals() { python3 "$scripts/totals.py" "$mnt" "$pando" || fail "totals of directories"; }

part_extents() { python3 "$scripts/extents.py" "$mnt" "$pando" || fail "copies share no extents"; }

# Handles need the rights of root.
part_handles() {
  is_root || return 0
  python3 "$scripts/handles.py" "$mnt" "$pando" "$volume" "$mnt" || fail "file handles"
}

part_atime() {
  python3 "$scripts/atime.py" "$mnt" relatime || fail "times of reading"
  is_root || return 0
  "$pando" umount "$mnt" > /dev/null
  ! "$pando" mount -o suid,dev,strictatime "$volume" "$mnt" > "$work/strictatime.log" 2>&1 || fail "strictatime is taken"
  grep -q 'relatime or noatime' "$work/strictatime.log" || { cat "$work/strictatime.log" >&2; fail "strictatime"; }
  mount_pando suid,dev,noatime
  findmnt -no OPTIONS "$mnt" | tr ',' '\n' | grep -qx noatime || fail "the table of mounts does not have noatime"
  python3 "$scripts/atime.py" "$mnt" noatime || fail "times of reading"
  "$pando" umount "$mnt" > /dev/null
  # What Linux reserves for itself is accepted, and changes nothing (docs/guide/mounting.md).
  mount_pando suid,dev,nodiratime,lazytime
  mkdir "$mnt/nodiratime"
  python3 "$scripts/atime.py" "$mnt/nodiratime" relatime || fail "times of reading with nodiratime"
  "$pando" umount "$mnt" > /dev/null
  mount_pando suid,dev
}

# Daemon and volume continue when a part runs as nobody: nobody kills neither.
scripts=$work sources=$work/sources sqlite_rounds=${SQLITE_ROUNDS:-1 2 3 4}
mkdir "$mnt/nobody" "$work/nobody"
chown nobody:nogroup "$mnt/nobody" "$work/nobody"
as_nobody=(setpriv --reuid nobody --regid nogroup --clear-groups env HOME="$work/nobody"
  CARGO_HOME="$work/nobody/.cargo" mnt="$mnt/nobody" work="$work/nobody" scripts="$scripts" sources="$sources" pando="$pando"
  repository=/ suite="$suite as nobody" cargo="$cargo" sqlite_rounds="1 2")
definitions="set -euo pipefail; cd /; $(declare -f)"
if ! "${as_nobody[@]}" test -x "$pando"; then
  cp "$pando" "$work/pando"
  as_nobody+=(pando="$work/pando")
fi

part_as() { # USER PART
  case $1-$2 in
    root-*) "part_$2" ;;
    *-cargo) cargo_as_nobody ;;
    *) "${as_nobody[@]}" bash -c "$definitions; part_$2" ;;
  esac
}

for user in ${PROGRAMS_USERS:-root nobody}; do
  parts="archives git sqlite cargo tools calls coherence totals extents handles atime"
  [ "$user" = root ] || parts=${PROGRAMS_OF_OTHERS:-$parts}
  for part in "${@:-$parts}"; do
    for one in $part; do
      start=$(date +%s%N)
      part_as "$user" "$one"
      printf 'programs: %-10s ok as %s, %d ms\n' "$one" "$user" $((($(date +%s%N) - start) / 1000000))
    done
  done
done
"$pando" umount "$mnt" > /dev/null
"$pando" fsck "$volume" > "$work/fsck.log" 2>&1 || { cat "$work/fsck.log" >&2; fail "the volume is not well"; }
