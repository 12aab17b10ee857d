#!/usr/bin/env bash
# Suites and loads of other projects on a mounted volume and on ext4 in the same run, case by case:
# what passes on ext4 must pass here, and what runs there must run here.
#   scripts/posix/outside.sh               all parts (some ten minutes)
#   scripts/posix/outside.sh quick         what `make test` runs: stress, shortened
#   scripts/posix/outside.sh PART...       stress python go fio dbench bonnie
# A part whose program is missing fails in the end, unless SKIP_STRESS, SKIP_GO and so on give a
# reason; a part that ran no case on the volume fails.
. "$(dirname "$0")/lib.sh"
skip_without_mounts
outside=$PWD/scripts/posix/outside.py
parts=("$@")
quick=
case ${1:-} in
  '') parts=(stress python go fio dbench bonnie) ;;
  quick) quick=1 STRESS_SECONDS=1 parts=(stress) ;;
esac
mount_pando suid,dev
mount_ext4 4096
wrong=0 absent=

as() { # USER COMMAND...
  local user=$1
  shift
  [ "$user" = root ] || set -- setpriv --reuid "$user" --regid nogroup --clear-groups "$@"
  "$@"
}

# place MOUNT PART USER: a directory of the user's own, empty
place() {
  rm -rf "$work/$1/$2-$3"
  mkdir -p "$work/$1/$2-$3"
  chown "$3" "$work/$1/$2-$3"
}

# both PART USER RUN [ARGUMENT...]: RUN USER DIRECTORY RESULTS [ARGUMENT...] on each, then compares.
# Results are lines of a case, a tab, and pass, fail or skip. In the quick form ext4 runs only if a
# case did not pass here: otherwise nothing can be worse.
both() {
  local part=$1 user=$2 run=$3 where passed
  shift 3
  for where in mnt ext4; do
    if [ -n "$quick" ] && [ "$where" = ext4 ] &&
      ! grep -qv $'\tpass$' "$work/$part-$user-mnt" && passed=$(grep -c $'\tpass$' "$work/$part-$user-mnt"); then
      echo "$part, $user: $passed pass, 0 skip, 0 fail"
      return
    fi
    place "$where" "$part" "$user"
    : > "$work/$part-$user-$where"
    "$run" "$user" "$work/$where/$part-$user" "$work/$part-$user-$where" "$@"
    rm -rf "$work/$where/$part-$user"
  done
  python3 "$outside" compare "$part, $user" "$work/$part-$user-ext4" "$work/$part-$user-mnt" && return
  wrong=1
  tail -60 "$work/$part-$user-mnt.log" | sed 's/^/  | /'
}

# missing PART PROGRAM: the others run first
missing() {
  local variable=SKIP_${1^^}
  (not_tested "$1" "$2 is missing: bash scripts/setup.sh outside" "$variable") || absent+=" $1"
}

# status CODE: for a program whose exit code reports the result of a case
status() {
  case $1 in
    0) echo pass ;;
    "${2:-none}" | "${3:-none}") echo skip ;;
    *) echo "fail" ;;
  esac
}

# --- stress-ng: its stressors of file systems, each with its own checks (--verify)

stressors() {
  if [ -n "$quick" ]; then
    echo access chmod chown dentry dir fallocate fcntl filename flock fpunch getdent iomix lockofd \
      link rename xattr
  else
    # Stressors that touch no file of the given directory are left out: bind-mount, binderfs, dup,
    # eventfd, procfs.
    echo access aio aiol chattr chdir chmod chown copy-file dentry dir dirdeep dirmany dnotify \
      fallocate fanotify fcntl fiemap file-ioctl filename flock fpunch fsize fstat getdent handle hdd \
      inode-flags inotify io iomix lease link locka lockf lockofd mknod msync open readahead rename \
      revio seek sendfile splice symlink sync-file touch utime verity xattr
  fi
}

run_stress() {
  local user=$1 directory=$2 results=$3 name code end
  for name in $(stressors); do
    case $name in hdd | iomix | fallocate | readahead | sync-file)
      set -- "--$name-bytes" 16m ;;
    seek) set -- --seek-size 16m ;;
    copy-file) set -- --copy-file-bytes 128m ;;
    *) set -- ;; esac
    # Each kind of call that a stressor makes is among them; most end long before the second does.
    [ -z "$quick" ] || set -- "$@" "--$name-ops" 200
    code=0
    as "$user" timeout 600 stress-ng "--$name" 2 "$@" --verify --timeout "${STRESS_SECONDS:-2}s" \
      --temp-path "$directory" --log-file "$work/stress.log" > "$work/stress.out" 2>&1 || code=$?
    # 3: no resources; 4: the kernel has no such call. A partial skip passes too, and is
    # distinguished below.
    end=$(status $code 3 4)
    [ "$end" != pass ] || ! grep -q "skipping stress" "$work/stress.out" || end=skip
    printf '%s\t%s\n' "$name" "$end" >> "$results"
    [ "$end" = pass ] || { echo "$directory $name: $code"; cat "$work/stress.out"; } >> "$results.log"
  done
}

part_stress() {
  command -v stress-ng > /dev/null || { missing stress stress-ng; return; }
  both stress root run_stress
  [ -n "$quick" ] || both stress nobody run_stress
}

# --- CPython's own tests that touch files

modules() {
  echo test_os test_posix test_posixpath test_genericpath test_stat test_shutil test_tempfile test_mmap \
      test_fcntl test_file test_fileio test_io test_bufio test_largefile test_pathlib test_glob \
      test_filecmp test_fileinput test_zipfile test_tarfile test_gzip test_bz2 test_lzma test_sqlite3 \
      test_mailbox test_dbm test_dbm_dumb test_dbm_gnu test_dbm_ndbm test_shelve test_zipimport test_import \
      test_py_compile test_compileall test_unicode_file test_unicode_file_functions test_linecache
}

run_python() {
  local user=$1 directory=$2 results=$3
  rm -f "$work/python.xml"
  install -d -o "$user" "$work/python-out"
  # shellcheck disable=SC2046 # names of modules
  (cd "$directory" && as "$user" env TMPDIR="$directory" HOME="$directory" PYTHONDONTWRITEBYTECODE=1 \
    timeout 900 "$python" -m test --timeout 300 -u largefile --tempdir "$directory" \
    --junit-xml "$work/python-out/results.xml" $(modules)) > "$results.log" 2>&1 || true
  mv "$work/python-out/results.xml" "$work/python.xml" 2> /dev/null || { tail -20 "$results.log" >&2; return; }
  python3 "$outside" junit "$work/python.xml" >> "$results"
}

part_python() {
  # The system's own, which other users can start; otherwise one on the path, only for root.
  python=
  for candidate in /usr/bin/python3 "$(command -v python3)"; do
    "$candidate" -c 'import test.test_os' 2> /dev/null && python=$candidate && break
  done
  [ -n "$python" ] || { missing python "the test package of Python"; return; }
  both python root run_python
  if [ "$python" = /usr/bin/python3 ]; then
    both python nobody run_python
  else
    (not_tested "python as nobody" "only $python has its tests, which is root's" SKIP_PYTHON) || absent+=" python"
  fi
}

# --- Go's tests of its packages about files

run_go() {
  local user=$1 directory=$2 results=$3 package name
  for package in os io/fs io/ioutil path/filepath archive/tar archive/zip; do
    name=$work/go-${package//\//-}.test
    [ -x "$name" ] || go test -c -o "$name" "$package" > "$work/go.log" 2>&1 || { cat "$work/go.log" >&2; continue; }
    (cd "$(go env GOROOT)/src/$package" &&
      TMPDIR=$directory timeout 300 "$name" -test.v -test.short -test.timeout 280s) > "$results.log" 2>&1 || true
    python3 "$outside" go "$package" "$results.log" >> "$results"
  done
}

part_go() {
  command -v go > /dev/null || { missing go go; return; }
  both go root run_go
}

# --- fio: written data is read again and compared

run_fio() {
  local directory=$2 results=$3 engine direct code
  for engine in psync pvsync2 libaio mmap; do
    for direct in 0 1; do
      [ "$engine$direct" != mmap1 ] || continue
      for rw in write randwrite randrw; do
        code=0
        timeout 120 fio --name "$engine-$direct-$rw" --directory "$directory" --ioengine "$engine" --rw "$rw" \
          --bs 4k --size 16m --numjobs 2 --direct "$direct" --iodepth 8 --verify crc32c --verify_fatal 1 \
          --do_verify 1 --verify_state_save 0 --verify_backlog 512 --randseed 1 --fsync 200 --output "$results.log" \
          > "$results.out" 2>&1 || code=$?
        printf '%s direct=%s %s\t%s\n' "$engine" "$direct" "$rw" "$(status $code)" >> "$results"
        rm -f "$directory"/*
      done
    done
  done
}

part_fio() {
  command -v fio > /dev/null || { missing fio fio; return; }
  both fio root run_fio
}

# --- dbench and bonnie++: loads that stop at an error

run_dbench() {
  local code=0
  timeout 120 dbench -D "$2" -t 10 4 > "$3.log" 2>&1 || code=$?
  ! grep -q "ERROR\|failed" "$3.log" || code=1
  printf 'four clients\t%s\n' "$(status $code)" >> "$3"
}

part_dbench() {
  command -v dbench > /dev/null || { missing dbench dbench; return; }
  both dbench root run_dbench
}

run_bonnie() {
  local code=0
  # Fast: its byte-by-byte I/O is a request each here.
  timeout 300 bonnie++ -f -d "$2" -u root -q -r 32 -s 64 -n 8:20000:10:4 > "$3.log" 2>&1 || code=$?
  printf 'files and throughput\t%s\n' "$(status $code)" >> "$3"
}

part_bonnie() {
  command -v bonnie++ > /dev/null || { missing bonnie bonnie++; return; }
  both bonnie root run_bonnie
}

for part in "${parts[@]}"; do
  "part_$part"
done
umount "$ext4"
"$pando" umount "$mnt" > /dev/null
"$pando" fsck "$volume" > "$work/fsck.log" 2>&1 || { cat "$work/fsck.log" >&2; fail "the volume is not well"; }
[ "$wrong" -eq 0 ] || fail "cases that ext4 passes do not pass here"
[ -z "$absent" ] || fail "not run:$absent"
