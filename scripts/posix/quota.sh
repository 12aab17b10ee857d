#!/usr/bin/env bash
# Quotas through the mount, as ordinary users and root see them: EDQUOT at the byte and at the file,
# chgrp, root, mappings, df; recounted afterwards, and checked by the next mount and by fsck.
#
#   scripts/posix/quota.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
skip_without_mounts
mount_pando
timeout 1200 python3 scripts/posix/quota.py "$pando" "$mnt" || fail "quotas"
timeout 600 "$pando" quota check "$volume" >/dev/null || fail "the counts differ from what is there"
listed=$("$pando" quota list "$volume" --json | sort)
timeout 300 "$pando" umount "$mnt" >/dev/null
mount_pando
[ "$("$pando" quota list "$volume" --json | sort)" = "$listed" ] || fail "another mount knows of other charges"
timeout 300 "$pando" umount "$mnt" >/dev/null
timeout 1200 "$pando" fsck "$volume" >/dev/null || fail "fsck finds something"
