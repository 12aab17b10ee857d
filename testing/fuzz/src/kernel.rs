//! Messages of the FUSE protocol, on a volume in memory: what the kernel sends, and what it would
//! never send.

#![expect(clippy::host_endian_bytes, reason = "the kernel's structures are in its own order")]

use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use fs::{FileSystem, FormatOptions, Fs, NewNode, OpenOptions, Volume};
use fuse::{Loopback, MountOptions};
use inode::{Caller, Kind, NodeId};
use testing::{MemStore, sim_env};

use crate::random::{bytes, name, number};
use crate::target::{Category, Target};

pub(crate) const TARGETS: &[Target] =
    &[Target { name: "kernel-messages", part: Category::Decoders, covers: &[], make, repair, run }];

/// Bytes of the header of a request.
const HEADER: usize = 40;
/// Operation codes that the kernel may send; the last is the highest known.
const OPCODES_END: u32 = 54;

/// Messages, each with its length first: together they are one case, so that a message can use what
/// another created.
fn make(random: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    for unique in 0..random.u64(1..12) {
        let opcode = random.u32(1..OPCODES_END);
        let mut body = Vec::new();
        match opcode {
            // LOOKUP, UNLINK, RMDIR, REMOVEXATTR
            1 | 10 | 11 | 24 => body.extend_from_slice(&terminated(random)),
            // SYMLINK
            6 => {
                body.extend_from_slice(&terminated(random));
                body.extend_from_slice(&terminated(random));
            }
            // SETATTR
            4 => body.extend_from_slice(&words(random, 22)),
            // MKNOD, MKDIR, CREATE, TMPFILE: numbers, then a name
            8 | 35 | 51 => {
                body.extend_from_slice(&words(random, 4));
                body.extend_from_slice(&terminated(random));
            }
            9 => {
                body.extend_from_slice(&words(random, 2));
                body.extend_from_slice(&terminated(random));
            }
            // RENAME, LINK, RENAME2
            12 | 13 => {
                body.extend_from_slice(&(node(random)).to_ne_bytes());
                body.extend_from_slice(&terminated(random));
                body.extend_from_slice(&terminated(random));
            }
            45 => {
                body.extend_from_slice(&(node(random)).to_ne_bytes());
                body.extend_from_slice(&words(random, 2));
                body.extend_from_slice(&terminated(random));
                body.extend_from_slice(&terminated(random));
            }
            // WRITE
            16 => {
                let payload = bytes(random, 300);
                body.extend_from_slice(&0_u64.to_ne_bytes());
                body.extend_from_slice(&offset(random).to_ne_bytes());
                body.extend_from_slice(&(payload.len() as u32).to_ne_bytes());
                body.extend_from_slice(&words(random, 5));
                body.extend_from_slice(&payload);
            }
            // SETXATTR
            21 => {
                let value = bytes(random, 60);
                body.extend_from_slice(&(value.len() as u32).to_ne_bytes());
                body.extend_from_slice(&random.u32(..4).to_ne_bytes());
                body.extend_from_slice(b"user.a\0");
                body.extend_from_slice(&value);
            }
            // GETXATTR
            22 => {
                body.extend_from_slice(&words(random, 2));
                body.extend_from_slice(b"user.a\0");
            }
            // READ, READDIR, READDIRPLUS, LSEEK, FALLOCATE, COPY_FILE_RANGE
            15 | 28 | 43 | 44 | 46 | 47 => {
                body.extend_from_slice(&0_u64.to_ne_bytes());
                body.extend_from_slice(&offset(random).to_ne_bytes());
                body.extend_from_slice(&random.u32(..20_000).to_ne_bytes());
                body.extend_from_slice(&words(random, 9));
            }
            _ => body.extend_from_slice(&words(random, 16)),
        }
        message(&mut out, opcode, unique, node(random), &body);
    }
    out
}

fn message(out: &mut Vec<u8>, opcode: u32, unique: u64, node: u64, body: &[u8]) {
    let length = (HEADER + body.len()) as u32;
    out.extend_from_slice(&length.to_ne_bytes());
    out.extend_from_slice(&length.to_ne_bytes());
    out.extend_from_slice(&opcode.to_ne_bytes());
    out.extend_from_slice(&unique.to_ne_bytes());
    out.extend_from_slice(&node.to_ne_bytes());
    // A caller without a process: 0, 0, 0, and no extension.
    out.extend_from_slice(&[0; 16]);
    out.extend_from_slice(body);
}

/// Mostly an existing node.
fn node(random: &mut Rng) -> u64 {
    let there = 1 << 40;
    [1, 1, there + 2, there + 3, there + 4, there + 5, there + random.u64(..12), number(random)]
        [random.usize(..8)]
}

fn offset(random: &mut Rng) -> u64 {
    if random.bool() { random.u64(..9000) } else { number(random) }
}

fn terminated(random: &mut Rng) -> Vec<u8> {
    const KNOWN: [&[u8]; 6] = [b"file\0", b"dir\0", b"link\0", b".snapshots\0", b"..\0", b"two\0"];
    if random.bool() {
        return KNOWN[random.usize(..KNOWN.len())].to_vec();
    }
    let mut name = name(random, 12);
    name.push(0);
    name
}

fn words(random: &mut Rng, count: usize) -> Vec<u8> {
    (0..count)
        .flat_map(|_| {
            let word = if random.bool() { random.u32(..0o10000) } else { random.u32(..) };
            word.to_ne_bytes()
        })
        .collect()
}

/// Sets the length within each message to that of the message, as the kernel does.
fn repair(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(length) = bytes.get(at..at + 4).and_then(|slot| slot.try_into().ok()) {
        let length = u32::from_ne_bytes(length);
        let left = bytes.len() - at - 4;
        let length = (length as usize).min(left).max(4.min(left));
        for slot in [at, at + 4] {
            if let Some(slot) = bytes.get_mut(slot..slot + 4) {
                slot.copy_from_slice(&(length as u32).to_ne_bytes());
            }
        }
        at += 4 + length;
        if length == 0 {
            break;
        }
    }
}

/// A small volume; every case has one of its own, so that it can be replayed.
fn volume() -> Arc<Volume> {
    let env = sim_env(1);
    let store = Arc::new(MemStore::new());
    let header = Fs::format_on(&env.env(), &*store, &FormatOptions::default())
        .expect("an empty store is formatted");
    let options = OpenOptions { index: None, ..OpenOptions::default() };
    let fs = Fs::open_on(env.env(), store, header, &options).expect("a fresh volume opens");
    let fs = Arc::new(fs.with_virtual_dirs());
    let root = Caller::root();
    let made = |parent: NodeId, name: &[u8], kind: Kind| {
        let new = NewNode { kind, mode: 0o644, rdev: 0 };
        fs.mknod(&root, parent, name, &new).expect("a fresh volume takes names").node
    };
    let file = made(NodeId::ROOT, b"file", Kind::File);
    fs.write(&root, file, 0, &[7; 6000]).expect("a fresh volume takes bytes");
    let dir = fs.mkdir(&root, NodeId::ROOT, b"dir", 0o755).expect("a fresh volume takes names");
    made(dir.node, b"two", Kind::Fifo);
    fs.symlink(&root, NodeId::ROOT, b"link", b"dir/two").expect("a fresh volume takes names");
    fs.link(&root, file, dir.node, b"again").expect("a fresh volume takes names");
    fs
}

fn run(bytes: &[u8]) -> bool {
    let options = MountOptions::new(Path::new("/nowhere"), Path::new("/nowhere"));
    let mut loopback = Loopback::new(volume(), &options);
    let mut rest = bytes;
    let mut answered = false;
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let length = (u32::from_ne_bytes(*length) as usize).min(behind.len());
        let (message, behind) = behind.split_at(length);
        rest = behind;
        if let Some(answer) = loopback.answer(message) {
            let stated = answer.first_chunk::<4>().map(|bytes| u32::from_ne_bytes(*bytes));
            assert_eq!(stated, Some(answer.len() as u32), "an answer of another length");
            answered = true;
        }
        if length == 0 {
            break;
        }
    }
    answered
}
