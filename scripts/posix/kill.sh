#!/usr/bin/env bash
# Kills the daemon of a mounted volume repeatedly under SQLite and git, mounts it again, and lets
# both check it: SQLite's check and its acknowledged rows, and git fsck. In turn they are root's,
# and an ordinary user's in a directory of its own.
#   scripts/posix/kill.sh [ROUNDS]     4 rounds in `make test`; 1,000 by `make soak-programs`
#   KILL_USERS=root                    only this user; otherwise root and nobody
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
    # Old rows are deleted, so that the file keeps its size.
    db.execute("delete from t where k < ?", (n - 3000,))
    for _ in range(10):
        n += 1
        db.execute("insert into t values(?, randomblob(?))", (n, random.randrange(3000)))
    db.execute("commit")
    # Removing the journal is the commit, and SQLite either does not sync the directory after it, or
    # treats one that it cannot open as synced.
    os.fsync(directory)
    print(n, flush=True)
PYTHON

as() { # USER COMMAND...
  local user=$1
  shift
  case $user in
    root) env user=root mnt="$mnt/root" state="$work/root" "$@" ;;
    *) setpriv --reuid "$user" --regid nogroup --clear-groups \
      env HOME="$work/$user" user="$user" mnt="$mnt/$user" state="$work/$user" "$@" ;;
  esac
}

commit_for_ever() {
  local n
  cd "$mnt/repository"
  rm -f .git/index.lock .git/HEAD.lock .git/refs/heads/*.lock
  for n in $(seq 100000); do
    head -c 5000 /dev/urandom | base64 > "file$((n % 20))"
    # git renames a reference into place, and leaves syncing the directory to us.
    git add -A && git commit -qm "$n" && sync .git/refs/heads &&
      git rev-parse HEAD > "$state/committed.new" &&
      cp "$state/committed.new" "$state/committed.now" &&
      mv "$state/committed.new" "$state/committed" || return 0
  done
}

begin() {
  [ "$(id -un)" = "$user" ]
  git init -q "$mnt/repository"
  cd "$mnt/repository"
  git config user.email a@b
  git config user.name a
  git config core.fsync all
  git config gc.auto 0
  git commit -q --allow-empty -m first
}
definitions="set -euo pipefail; $(declare -f commit_for_ever begin)"

# keeps_commits USER ROUND: the repository is whole, and has what git acknowledged
keeps_commits() {
  as "$1" git -C "$mnt/$1/repository" fsck --full --strict > "$work/git.out" 2>&1 ||
    { cat "$work/git.out" >&2; fail "round $2, $1: git fsck"; }
  [ -s "$work/$1/committed" ] || return 0
  as "$1" git -C "$mnt/$1/repository" merge-base --is-ancestor "$(cat "$work/$1/committed")" HEAD ||
    fail "round $2, $1: a commit that git acknowledged is gone"
}

read -ra users <<< "${KILL_USERS:-root nobody}"
for user in "${users[@]}"; do
  install -d -o "$user" "$mnt/$user" "$work/$user"
  as "$user" bash -c "$definitions; begin" || fail "no repository as $user"
done

# Each round ends at another moment of the programs' work.
RANDOM=${SEED:-$$}
echo "kill: $rounds rounds, seed ${SEED:-$$}"
# Rounds in which SQLite, git, and both acknowledged something: other rounds prove little. Per user.
rows=0 commits=0 both=0
declare -A rows_of commits_of
for round in $(seq "$rounds"); do
  mode=delete
  [ $((round % 2)) -eq 0 ] || mode=wal
  # Each user meets each mode, and rounds that wait and that do not.
  user=${users[(round / 2 + round / 8) % ${#users[@]}]}
  : > "$work/acknowledged"
  rm -f "$work/$user/committed.now"
  as "$user" python3 "$work/writer.py" "$mnt/$user/$mode.db" $mode \
    > "$work/acknowledged" 2> "$work/writer.log" &
  writer=$!
  as "$user" bash -c "$definitions; commit_for_ever" > "$work/git.log" 2>&1 &
  committer=$!
  # On a busy machine they start slowly. One round in four does not wait for them.
  for _ in $(seq $((round % 4 == 0 ? 0 : 2400))); do
    [ ! -s "$work/acknowledged" ] || [ ! -e "$work/$user/committed.now" ] || break
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
  found=$(as "$user" sqlite3 "$mnt/$user/$mode.db" \
    "pragma integrity_check; select coalesce(max(k), 0) from t" 2>&1) || true
  if [ -e "$work/$user/committed.now" ]; then
    [ ! -s "$work/acknowledged" ] || both=$((both + 1))
    commits=$((commits + 1))
    commits_of[$user]=$((${commits_of[$user]:-0} + 1))
  fi
  if [ -s "$work/acknowledged" ]; then
    rows=$((rows + 1))
    rows_of[$user]=$((${rows_of[$user]:-0} + 1))
    [ "$(head -1 <<< "$found")" = ok ] ||
      fail "round $round, $user: SQLite ($mode) is damaged: $found"
    [ "$(tail -1 <<< "$found")" -ge "$last" ] ||
      fail "round $round, $user: SQLite acknowledged $last: $found"
  fi
  keeps_commits "$user" "$round"
  [ $((round % 100)) -ne 0 ] || echo "kill: $round rounds, rows in $rows, commits in $commits, both in $both; $SECONDS s"
done
# What one of them wrote has survived the kills of the others since.
for user in "${users[@]}"; do
  keeps_commits "$user" "the end"
done
"$pando" umount "$mnt" > /dev/null
"$pando" fsck "$volume" > "$work/fsck.log" 2>&1 ||
  { cat "$work/fsck.log" >&2; fail "the volume is not well"; }
acknowledged=
for user in "${users[@]}"; do
  acknowledged+=", $user: rows in ${rows_of[$user]:-0}, commits in ${commits_of[$user]:-0}"
  # At least one of four rounds waited for each user.
  [ "$rounds" -lt 4 ] || [ "$((${rows_of[$user]:-0} * ${commits_of[$user]:-0}))" -gt 0 ] ||
    fail "nothing was acknowledged in $rounds rounds$acknowledged"
done
[ "$rows" -gt 0 ] && [ "$commits" -gt 0 ] ||
  fail "nothing was acknowledged in $rounds rounds$acknowledged"
echo "kill: SQLite and git lost nothing in $rounds rounds" \
  "(acknowledged: rows in $rows, commits in $commits, both in $both of them$acknowledged; $SECONDS s)"
