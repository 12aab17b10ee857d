#!/bin/bash
# The first process of the guest of nfs-clients.sh and nfs-export.sh: what both need, then one's checks.
set -u
export PATH=$TOOLS/usr/sbin:$TOOLS/sbin:$TOOLS/usr/bin:$PATH:/usr/sbin:/sbin:/usr/bin:/bin
libraries=$TOOLS/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH=$libraries:$TOOLS/lib/x86_64-linux-gnu:$TOOLS/usr/lib/ganesha
exec 2>&1

end() {
  # The kernel ends when this does; the log is complete before.
  sync
  python3 -c 'import ctypes; ctypes.CDLL(None).reboot(0x4321FEDC)'
  sleep 60
}
trap end EXIT
fail() { echo "guest: $*"; exit 1; }

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mkdir -p /dev/shm
for place in /tmp /run /mnt /var/lib /dev/shm; do
  mount -t tmpfs tmpfs $place || fail "no memory file system on $place"
done
mount -t devpts devpts /dev/pts 2>/dev/null
mkdir -p /tmp/etc && cp -a /etc/. /tmp/etc/ 2>/dev/null
mount --bind /tmp/etc /etc || fail "no /etc of its own"
python3 "$HERE/modules.py" "$TOOLS/usr/lib/uml/modules" fuse nfsd nfsv4 nfsv3 || fail "modules"
[ -e /dev/fuse ] || mknod /dev/fuse c 10 229
ip link set lo up

mkdir -p /run/rpc_pipefs /var/lib/nfs/v4recovery /var/lib/nfs/ganesha /mnt/nfs /mnt/m
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
mount -t rpc_pipefs rpc_pipefs /run/rpc_pipefs
mount -t nfsd nfsd /proc/fs/nfsd || fail "no NFS server in this kernel"

clients() {
  mkdir /tmp/export
  mount -t tmpfs tmpfs /tmp/export
  echo '/tmp/export 127.0.0.1(rw,sync,fsid=0,no_root_squash,insecure,no_subtree_check)' > /etc/exports
  echo 10 > /proc/fs/nfsd/nfsv4leasetime
  echo 10 > /proc/fs/nfsd/nfsv4gracetime
  rpc.mountd -N 2 -N 3 || fail "rpc.mountd"
  exportfs -a || fail "exportfs"
  rpc.nfsd -N 3 -U 8 || rpc.nfsd -N 3 8 || fail "rpc.nfsd"
  python3 "$HERE/clients.py" "$PANDO"
}

export_mount() {
  # rpcbind runs as a user of its own, and knows protocols from this file.
  echo '_rpc:x:998:65534::/run/rpcbind:/usr/sbin/nologin' >> /etc/passwd
  [ -e /etc/netconfig ] || cp "$TOOLS/etc/netconfig" /etc/netconfig
  mkdir -p /run/rpcbind
  rpcbind || fail "rpcbind"
  PLUGINS=$libraries/ganesha python3 "$HERE/export.py" "$PANDO"
}

case $PART in
  clients) clients ;;
  export) export_mount ;;
  *) fail "there is no part $PART" ;;
esac && echo "$PART: all passed"
