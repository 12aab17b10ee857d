"""Loads kernel modules with what they need:  modules.py DIRECTORY NAME..."""

import ctypes
import os
import sys

FINIT_MODULE = 313
EXISTS = 17


def main():
    top = f"{sys.argv[1]}/{os.uname().release}"
    needs, paths = {}, {}
    with open(f"{top}/modules.dep") as table:
        for line in table:
            path, _, rest = line.partition(":")
            needs[path] = rest.split()
            paths[os.path.basename(path).split(".")[0]] = path
    kernel = ctypes.CDLL(None, use_errno=True)
    done = set()

    def load(path):
        if path in done:
            return
        done.add(path)
        for need in reversed(needs.get(path, [])):
            load(need)
        with open(f"{top}/{path}", "rb") as file:
            if kernel.syscall(FINIT_MODULE, file.fileno(), b"", 0) != 0:
                error = ctypes.get_errno()
                if error != EXISTS:
                    sys.exit(f"{path}: {os.strerror(error)}")

    for name in sys.argv[2:]:
        if name not in paths:
            print(f"{name}: built in, or absent")
            continue
        load(paths[name])


if __name__ == "__main__":
    main()
