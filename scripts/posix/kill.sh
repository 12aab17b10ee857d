#!/usr/bin/env bash
# Kills the owner of a mounted volume again and again under SQLite and git, mounts it again, and asks
# both what they think of it: SQLite's check and its acknowledged rows, and git fsck.
#   scripts/posix/kill.sh [ROUNDS]     4 rounds in `make test`; 1,000 by `make soak-programs`
. "$(dirname "$0")/lib.sh"
skip_without_mounts
rounds=${1:-4}
mount_pando suid,dev

cat > "$work/writer.py" <<'PYTHON'
import os, sqlite3, sys, random
directory = os.open(os.path.dirname(sys.argv[1]), os.O_RDONLY | os.O_DIRECTORY)
db = sqlite3.connect(sys.argv[1], timeout=20, isolation_level=None)
db.execute("pragma journal_mode=" + sys.argv[2])
db.execute("pragma synchronous=full")
db.execute("create table if not exists t(k integer primary key, v blob)")
n = db.execute("select coalesce(max(k), 0) from t").fetchone()[0]
while True:
    db.execute("begin immediate")
    # Old rows go, so that the file has a size that stays.
    db.execute("delete from t where k < ?", (n - 3000,))
    for _ in range(10):
        n += 1
        db.execute("insert into t values(?, randomblob(?))", (n, random.randrange(3000)))
    db.execute("commit")
    # To remove the journal is to commit, and SQLite either does not sync the directory after it, or
    # takes one that it cannot open for synced.
    os.fsync(directory)
    print(n, flush=True)
PYTHON

git init -q "$mnt/repository"
cd "$mnt/repository"
git config user.email a@b
git config user.name a
git config core.fsync all
git config gc.auto 0
git commit -q --allow-empty -m first
cd - > /dev/null

commit_for_ever() {
  local n
  cd "$mnt/repository"
  rm -f .git/index.lock .git/HEAD.lock .git/refs/heads/*.lock
  for n in $(seq 100000); do
    head -c 5000 /dev/urandom | base64 > "file$((n % 20))"
    # git renames a reference into place, and leaves it to us to sync the directory.
    git add -A && git commit -qm "$n" && sync .git/refs/heads &&
      git rev-parse HEAD > "$work/committed.new" &&
      cp "$work/committed.new" "$work/committed.now" && mv "$work/committed.new" "$work/committed" || return 0
  done
}

# Each round ends at another moment of the others' work.
RANDOM=${SEED:-$$}
echo "kill: $rounds rounds, seed ${SEED:-$$}"
# Rounds in which SQLite and git acknowledged something: the others show little.
rows=0 commits=0
for round in $(seq "$rounds"); do
  mode=delete
  [ $((round % 2)) -eq 0 ] || mode=wal
  : > "$work/acknowledged"
  rm -f "$work/committed.now"
  python3 "$work/writer.py" "$mnt/$mode.db" $mode > "$work/acknowledged" 2> "$work/writer.log" &
  writer=$!
  commit_for_ever > "$work/git.log" 2>&1 &
  committer=$!
  # On a busy machine they take long to begin. One round in four does not wait for them.
  for _ in $(seq $((round % 4 == 0 ? 0 : 2400))); do
    [ ! -s "$work/acknowledged" ] || [ ! -e "$work/committed.now" ] || break
    kill -0 "$writer" 2> /dev/null && kill -0 "$committer" 2> /dev/null || break
    sleep 0.05
  done
  sleep "0.$((RANDOM % 9 + 1))"
  pid=$("$pando" status --json "$volume" | tr ',{}' '\n\n\n' | sed -n 's/^ *"pid": *\([0-9][0-9]*\).*/\1/p' | head -1)
  kill -9 "$pid"
  { wait "$writer" "$committer" || true; } 2> /dev/null
  umount -l "$mnt"
  mount_pando suid,dev
  last=$(tail -1 "$work/acknowledged")
  found=$(sqlite3 "$mnt/$mode.db" "pragma integrity_check; select coalesce(max(k), 0) from t" 2>&1) || true
  [ ! -e "$work/committed.now" ] || commits=$((commits + 1))
  if [ -s "$work/acknowledged" ]; then
    rows=$((rows + 1))
    [ "$(head -1 <<< "$found")" = ok ] || fail "round $round: SQLite ($mode) is damaged: $found"
    [ "$(tail -1 <<< "$found")" -ge "$last" ] || fail "round $round: SQLite acknowledged $last: $found"
  fi
  git -C "$mnt/repository" fsck --full --strict > "$work/git.out" 2>&1 ||
    { cat "$work/git.out" >&2; fail "round $round: git fsck"; }
  if [ -s "$work/committed" ]; then
    git -C "$mnt/repository" merge-base --is-ancestor "$(cat "$work/committed")" HEAD ||
      fail "round $round: a commit that git acknowledged is gone"
  fi
  [ $((round % 100)) -ne 0 ] || echo "kill: $round rounds, rows in $rows, commits in $commits"
done
"$pando" umount "$mnt" > /dev/null
"$pando" fsck "$volume" > "$work/fsck.log" 2>&1 || { cat "$work/fsck.log" >&2; fail "the volume is not well"; }
[ "$rows" -gt 0 ] && [ "$commits" -gt 0 ] || fail "nothing was acknowledged in $rounds rounds (rows in $rows, commits in $commits)"
echo "kill: SQLite and git lost nothing in $rounds rounds (acknowledged rows in $rows, commits in $commits of them)"
