#!/usr/bin/env bash
# Limits at their edge (docs/limits.md) on a mounted volume, and the behaviour of a large directory;
# as root, and then as an ordinary user, with fewer entries.
#   scripts/posix/limits.sh               1 million entries, 100,000 open files
#   scripts/posix/limits.sh quick         what `make test` runs: 20,000 entries, 3,000 open files
#   scripts/posix/limits.sh full          10 million entries, 1,048,576 links, the bars checked
#   LIMITS_USERS=root                     as these users; otherwise as root and nobody
. "$(dirname "$0")/lib.sh"
skip_without_mounts
case ${1:-} in
  quick)
    sizes=(20000 3000 1000) others=(1000 500 200) snapshots=60 clones=40
    # Without the bars only whether it works counts.
    export TURNS=2 NAMES=100
    ;;
  full)
    sizes=(10000000 100000 1048576) others=(1000000 100000 2000) snapshots=2000 clones=2000
    export BARS=1
    ;;
  *) sizes=(1000000 100000 2000) others=(100000 20000 2000) snapshots=2000 clones=2000 ;;
esac
# cloned: the number of clones that the daemon reports
cloned() { "$pando" status --json "$volume" | tr ',{}' '\n\n\n' | sed -n 's/^ *"clones": *//p' | head -1; }

# clones USER: as many of a directory, each readable and independent; counted; gone when removed
clones() {
  local user=$1 n before start
  "${as[@]}" mkdir "$mnt/$user/source" "$mnt/$user/clones"
  "${as[@]}" bash -c "echo shared > '$mnt/$user/source/file'"
  before=$(cloned)
  start=$(date +%s%N)
  for n in $(seq "$clones"); do
    "${as[@]}" "$pando" --quiet clone "$mnt/$user/source" "$mnt/$user/clones/$n" > /dev/null || fail "clone $n"
  done
  took=$((($(date +%s%N) - start) / 1000 / clones))
  [ "$(cloned)" -eq $((before + clones)) ] || fail "$(cloned) clones are counted, $before and $clones were made"
  "${as[@]}" bash -c "cd '$mnt/$user/clones' && for n in \$(seq 7 7 $clones); do echo \$n > \$n/file; done"
  for n in $(seq "$clones"); do
    read -r line < "$mnt/$user/clones/$n/file"
    [ "$line" = "$([ $((n % 7)) -eq 0 ] && echo "$n" || echo shared)" ] || fail "clone $n has '$line'"
  done
  [ "$("${as[@]}" ls "$mnt/$user/clones" | wc -l)" -eq "$clones" ] || fail "not every clone is listed"
  "${as[@]}" "$pando" --quiet rmr --wait "$mnt/$user/clones" > /dev/null || fail "clones are not removed"
  for n in $(seq 1200); do
    [ "$(cloned)" -ne "$before" ] || break
    sleep 0.1
  done
  [ "$(cloned)" -eq "$before" ] || fail "$(cloned) clones are counted after their removal, $before before"
  [ "$(cat "$mnt/$user/source/file")" = shared ] || fail "the source of the clones"
  echo "{\"limit\": \"clones\", \"made\": $clones, \"us_each\": $took, \"user\": \"$user\"}"
}

mount_pando suid,dev
pid=$("$pando" status --json "$volume" | tr ',{}' '\n\n\n' |
  sed -n 's/^ *"pid": *\([0-9][0-9]*\).*/\1/p' | head -1)
for user in ${LIMITS_USERS:-root nobody}; do
  as=()
  if [ "$user" != root ]; then
    as=(setpriv --reuid "$user" --regid nogroup --clear-groups)
    sizes=("${others[@]}") snapshots=$((snapshots / 4)) clones=$((clones / 4))
  fi
  install -d -o "$user" "$mnt/$user"
  python3 scripts/posix/limits.py "$mnt/$user" "$pid" "${sizes[@]}" "$user" ||
    fail "a limit is not where it should be, as $user"
  "${as[@]}" mkdir "$mnt/$user/many"
  for n in $(seq $snapshots); do "${as[@]}" mkdir "$mnt/$user/many/.snapshots/$n"; done
  [ "$(ls "$mnt/$user/many/.snapshots" | wc -l)" -eq $snapshots ] || fail "$snapshots snapshots"
  echo "{\"limit\": \"snapshots\", \"made\": $snapshots, \"user\": \"$user\"}"
  clones "$user"
done
"$pando" umount "$mnt" > /dev/null
"$pando" fsck "$volume" > "$work/fsck.log" 2>&1 ||
  { cat "$work/fsck.log" >&2; fail "the volume is not well"; }
