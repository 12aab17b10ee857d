//! A flipped bit anywhere in any file of a volume is harmless or an error that names the place:
//! never wrong data, never a panic.

use device::Timestamp;
use fs::Engine;
use inode::{Caller, IoFailure, Kind};
use store::Durability;
use testing::SimDevice;
use testing::model::{Dump, Effect, ErrorKind, Op, OpPath, Subject, Target, show_path};

use crate::script::{SNAPSHOTS, Script, Step, options, scale};
use crate::subject::{Base, FsSubject};

/// The outcome of reading a damaged volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadOutcome {
    Harmless,
    /// A read failed, and named the place.
    Named,
    /// The opening failed, and named the file.
    Refused,
}

/// A bit that was flipped.
struct Flip {
    file: String,
    bit: u64,
    seed: u64,
}

impl std::fmt::Display for Flip {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "seed {}: bit {} of {}", self.seed, self.bit, self.file)
    }
}

/// Longest block that one checksum covers: an error names the byte at which the block begins.
const BLOCK_BYTES_MAX: u64 = 64 << 10;

impl Flip {
    /// An error of a read is of the file and the block in which the bit is, in its value and in
    /// its text.
    fn is_named_by(&self, failure: &IoFailure) -> bool {
        let Some((file, offset)) = failure.place.as_deref() else { return false };
        let byte = self.bit / 8;
        let names = |what: &str| failure.what.contains(what);
        *file == self.file
            && (*offset..*offset + BLOCK_BYTES_MAX).contains(&byte)
            && names(file)
            && names(&offset.to_string())
            && failure.is_damage
    }
}

/// Asks one thing; an error that names the damage may be answered instead of the right answer.
fn ask(subject: &mut FsSubject, op: &Op, place: &Flip) -> Option<Effect> {
    match subject.run(Timestamp(0), &Caller::root(), op) {
        Ok(effect) => Some(effect),
        Err(ErrorKind::Io) => {
            let failure = subject.take_failure().expect("the subject keeps what failed");
            assert!(place.is_named_by(&failure), "{place}: {op:?}: names no place: {failure:?}");
            None
        }
        Err(other) => panic!("{place}: {op:?} answers {other:?}"),
    }
}

/// Reads everything that should be there.
fn look(subject: &mut FsSubject, right: &Dump, place: &Flip) -> ReadOutcome {
    let mut found = ReadOutcome::Harmless;
    for (path, node) in &right.nodes {
        let mut questions = vec![Op::Stat { target: Target::Path(path.clone()) }];
        let bytes = match node.stat.kind {
            Kind::File => {
                let length = node.stat.size as usize + 1;
                Some(Op::Read { target: Target::Path(path.clone()), offset: 0, length })
            }
            Kind::Symlink => Some(Op::Readlink { path: path.clone() }),
            _ => None,
        };
        questions.extend(bytes);
        questions.extend(node.xattrs.keys().map(|name| {
            let name = name.clone();
            Op::GetXattr { path: path.clone(), name }
        }));
        if node.stat.kind == Kind::Directory {
            questions.push(Op::List { path: path.clone() });
        }
        for op in questions {
            match ask(subject, &op, place) {
                None => found = ReadOutcome::Named,
                Some(effect) => compare(right, path, &op, &effect, place),
            }
        }
    }
    found
}

fn compare(right: &Dump, path: &OpPath, op: &Op, effect: &Effect, place: &Flip) {
    let node = &right.nodes[path];
    let at = show_path(path);
    match (op, effect) {
        (Op::Stat { .. }, Effect::Stat(stat)) => {
            assert!(node.stat.admits(stat), "{place}: {at}: {stat:?} not {:?}", node.stat);
        }
        (Op::GetXattr { name, .. }, Effect::Bytes(value)) => {
            assert!(node.xattrs[name] == *value, "{place}: {at}: a wrong attribute");
        }
        (_, Effect::Bytes(bytes)) => assert!(node.bytes == *bytes, "{place}: {at}: wrong contents"),
        (_, Effect::List(listed)) => {
            let below = |other: &&OpPath| other.len() == path.len() + 1 && other.starts_with(path);
            let names: Vec<_> = right.nodes.keys().filter(below).map(|path| path.last()).collect();
            let seen: Vec<_> = listed.iter().map(|entry| Some(&entry.name)).collect();
            assert_eq!(seen, names, "{place}: {at}: a wrong listing");
        }
        other => panic!("{place}: {at}: {other:?}"),
    }
}

/// Bits to flip in a file: those of places that hold something, and a few of those that do not.
fn bits(disk: &SimDevice, path: &str, length: u64, count: u64, seed: u64) -> Vec<u64> {
    let bytes = disk.read_file(path);
    let held: Vec<u64> = (0_u64..)
        .zip(bytes.chunks(16))
        .filter(|(_, c)| c.iter().any(|b| *b != 0))
        .map(|(at, _)| at)
        .collect();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bits = Vec::new();
    for _ in 0..count {
        if let Some(&chunk) = random.choice(&held) {
            bits.push((chunk * 128 + random.u64(..128)).min(length * 8 - 1));
        }
    }
    bits.extend((0..count / 8).map(|_| random.u64(..length * 8)));
    bits
}

fn flip_bits(disk: &SimDevice, right: &Dump, count: u64, seed: u64) -> [u64; 3] {
    let (mut refused, mut named, mut harmless) = (0, 0, 0);
    for (path, length) in disk.files().into_iter().filter(|(_, length)| *length > 0) {
        for bit in bits(disk, &path, length, count, seed) {
            let place = Flip { file: path.clone(), bit, seed };
            let damaged = disk.copy();
            // The engine is in the header of the volume.
            let base = Base::Engine(Engine::default());
            damaged.flip_bit(&path, bit);
            let found = match FsSubject::open(&damaged, &options(Durability::Async), &base) {
                Ok(mut subject) => look(&mut subject, right, &place),
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains(&path), "{place}: the error names no place: {text}");
                    ReadOutcome::Refused
                }
            };
            match found {
                ReadOutcome::Harmless => harmless += 1,
                ReadOutcome::Named => named += 1,
                ReadOutcome::Refused => refused += 1,
            }
        }
    }
    [refused, named, harmless]
}

#[test]
fn a_flipped_bit_is_harmless_or_an_error_and_never_wrong_data() {
    run(Engine::Btree, scale(2, 12));
}

#[test]
fn a_flipped_bit_on_the_log_structured_engine_is_harmless_or_an_error() {
    run(Engine::Lsm, scale(2, 12));
}

#[expect(clippy::print_stdout, reason = "a failure is found again by its seed")]
fn run(engine: Engine, seeds: u64) {
    for seed in 0..seeds {
        println!("seed {seed}");
        let device = SimDevice::new(seed);
        let mut script = Script::new(&device, seed, Durability::Async, &Base::Engine(engine));
        for _ in 0..100 {
            assert_eq!(script.step(), Step::Done);
        }
        let right = Dump::collect(&mut script.model, SNAPSHOTS);
        // With a log to replay, and cleanly closed.
        script.subject.fs().sync().expect("a sync");
        let crashed = flip_bits(&device.copy(), &right, scale(24, 4000), seed);
        script.subject.fs().close().expect("a close");
        let closed = flip_bits(&device.copy(), &right, scale(24, 4000), seed);
        println!("flips [refused, named, harmless]: with a log {crashed:?}, closed {closed:?}");
        let found = |[refused, named, _]: [u64; 3]| refused > 0 && named > 0;
        assert!(found(crashed) && found(closed), "openings and reads must have found some damage");
    }
}
