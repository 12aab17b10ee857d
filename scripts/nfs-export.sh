#!/usr/bin/env bash
# NFS servers that export a mounted volume, on both engines: Ganesha (in user space, NFS 4.2 and 3) and the
# one of the kernel. A client creates, renames and removes, and compares contents with the mount. Its handles
# open after the kernel dropped its caches, after a remount and after a crash below the server. All runs in a
# kernel of Debian that is a program.
#     scripts/nfs-export.sh            some minutes; its variables are in scripts/nfs/uml.sh
. "$(dirname "$0")/nfs/uml.sh"
run_guest export
