//! Queries: the arguments of `pando find`, the words of a search box, regular expressions, and
//! their evaluation on rows.

use fastrand::Rng;
use format::inode_record::FileKind;
use inode::{Caller, Ends, Enforce};
use search::query::{
    Accounts, Context, Dialect, Expr, Fired, Letters, Reference, Regex, Surroundings, What,
    is_query, parse, parse_search_box,
};
use search::{Details, Row};

use crate::random::{bytes, name};
use crate::target::{Category, Target, no_checksum, seen};

pub(crate) const TARGETS: &[Target] = &[
    Target {
        name: "find-arguments",
        part: Category::Decoders,
        covers: &[],
        make: make_arguments,
        repair: no_checksum,
        run: run_arguments,
    },
    Target {
        name: "search-box",
        part: Category::Decoders,
        covers: &[],
        make: make_box,
        repair: no_checksum,
        run: |bytes| {
            seen(is_query(bytes));
            let Ok(expr) = parse_search_box(bytes, &Around) else { return false };
            ask(&expr);
            true
        },
    },
    Target {
        name: "regex",
        part: Category::Decoders,
        covers: &[],
        make: make_regex,
        repair: no_checksum,
        run: run_regex,
    },
];

const TESTS: &[(&str, &[&str])] = &[
    ("-name", &["*.h5", "[a-z]?", "a\\*b", "[[:alpha:]]*", "[!x]", "["]),
    ("-iname", &["*A*", "[^a]"]),
    ("-path", &["*/x/*", "./a"]),
    ("-lname", &["t*"]),
    ("-regex", &[".*\\.\\(c\\|h\\)", "a\\{2,3\\}", "^a$"]),
    ("-regextype", &["posix-extended", "sed", "emacs", "findutils-default"]),
    ("-type", &["f", "d,l", "f,d,l,p,s,b,c"]),
    ("-size", &["+10k", "-3G", "7c", "0", "18446744073709551615c", "9223372036854775807G"]),
    ("-mtime", &["+1", "-0.5", "3", "99999999999999999999"]),
    ("-amin", &["-10", "+9223372036854775807"]),
    ("-newermt", &["2024-05-31", "yesterday"]),
    ("-newer", &["/there", "/missing"]),
    ("-perm", &["644", "-u=rwx", "/g+w,o-x", "a=", "u+s,g=u", "-07777", "+o"]),
    ("-uid", &["0", "+4294967295"]),
    ("-user", &["alice", "1000", "nobody here"]),
    ("-links", &["1", "-99"]),
    ("-inum", &["77", "+18446744073709551615"]),
    ("-samefile", &["/there"]),
    ("-xattr", &["user.a", "user.a=b*"]),
    ("-query", &["size:>1G *.h5", "name:a OR owner:alice"]),
    ("-maxdepth", &["3", "4294967296"]),
    ("-mindepth", &["0"]),
    ("-printf", &["%p %s\\n", "%T@ %-20f|%05k", "%%%", "\\0101", "%Ty%Ak%C+%B@", "%10.3u"]),
    ("-fprintf", &["/out"]),
    ("-true", &[]),
    ("-false", &[]),
    ("-empty", &[]),
    ("-readable", &[]),
    ("-nouser", &[]),
    ("-daystart", &[]),
    ("-depth", &[]),
    ("-prune", &[]),
    ("-print", &[]),
    ("-print0", &[]),
    ("-ls", &[]),
    ("-quit", &[]),
    ("-count", &[]),
    ("!", &[]),
    ("-not", &[]),
    ("(", &[]),
    (")", &[]),
    ("-o", &[]),
    ("-a", &[]),
    (",", &[]),
];

/// Arguments, each terminated by a zero byte.
fn make_arguments(random: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    let mut open = 0;
    for _ in 0..random.usize(1..10) {
        let (word, operands) = TESTS[random.usize(..TESTS.len())];
        match word {
            "(" => open += 1,
            ")" if open == 0 => continue,
            ")" => open -= 1,
            _ => {}
        }
        out.extend_from_slice(word.as_bytes());
        out.push(0);
        if !operands.is_empty() {
            out.extend_from_slice(operands[random.usize(..operands.len())].as_bytes());
            out.push(0);
        }
        if word == "(" {
            out.extend_from_slice(b"-true\0");
        }
    }
    for _ in 0..open {
        out.extend_from_slice(b")\0");
    }
    if random.u8(..40) == 0 {
        let depth = random.usize(..400);
        out = [b"!\0".repeat(depth), b"(\0".repeat(depth), out, b")\0".repeat(depth)].concat();
    }
    out
}

fn run_arguments(bytes: &[u8]) -> bool {
    let arguments: Vec<Vec<u8>> = bytes.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    let arguments = match arguments.split_last() {
        Some((last, rest)) if last.is_empty() => rest.to_vec(),
        _ => arguments,
    };
    let Ok(command) = parse(&arguments, &Around) else { return false };
    ask(&command.expr);
    for action in &command.actions {
        if let What::Printf(format) = &action.what {
            seen(format.uses(b"pfs"));
        }
    }
    true
}

fn make_box(random: &mut Rng) -> Vec<u8> {
    const WORDS: [&str; 18] = [
        "owner:alice",
        "size:>1G",
        "mtime:<30d",
        "*.h5",
        "Readme",
        "\"two words\"",
        "OR",
        "!tmp",
        "ext:c,h",
        "type:d",
        "perm:u=rw",
        "links:2..5",
        "is:empty",
        "xattr:user.a=b",
        "path:a/b",
        "name:/^a.*z$/",
        "depth:<3",
        "inode:77",
    ];
    let words: Vec<&str> = (0..random.usize(1..6)).map(|_| WORDS[random.usize(..18)]).collect();
    words.join(" ").into_bytes()
}

/// A byte for the dialect, then the expression.
fn make_regex(random: &mut Rng) -> Vec<u8> {
    const PARTS: [&str; 24] = [
        "a",
        "b*",
        ".",
        "\\(a\\|b\\)",
        "(a|b)",
        "[a-z]",
        "[^]x]",
        "[[:digit:]]",
        "\\{2,3\\}",
        "{2,3}",
        "\\+",
        "+",
        "?",
        "^",
        "$",
        "\\w",
        "\\<",
        "\\b",
        "\\`",
        "[[.a.]]",
        "\\1",
        "(?i)",
        "\\pL",
        "{9999}",
    ];
    let mut out = vec![random.u8(..)];
    for _ in 0..random.usize(1..8) {
        out.extend_from_slice(PARTS[random.usize(..PARTS.len())].as_bytes());
    }
    out
}

fn run_regex(bytes: &[u8]) -> bool {
    let Some((dialect, pattern)) = bytes.split_first() else { return false };
    let all =
        [Dialect::Findutils, Dialect::Emacs, Dialect::Basic, Dialect::Extended, Dialect::Native];
    let letters = if dialect & 8 == 0 { Letters::Utf8 } else { Letters::Bytes };
    let dialect_of = all[usize::from(*dialect) % all.len()];
    let Ok(regex) = Regex::new(pattern, dialect_of, dialect & 16 != 0, letters) else {
        return false;
    };
    for text in [&b"abc"[..], b"", b"\xff\n", pattern] {
        seen(regex.matches(text));
    }
    true
}

struct Around;

impl Surroundings for Around {
    fn now(&self) -> i64 {
        1_700_000_000_000_000_000
    }

    fn day_start(&self) -> i64 {
        1_699_920_000_000_000_000
    }

    fn user(&self, name: &[u8]) -> Option<u32> {
        (name == b"alice").then_some(1000)
    }

    fn group(&self, name: &[u8]) -> Option<u32> {
        (name == b"staff").then_some(50)
    }

    fn reference(&self, path: &[u8]) -> Result<Reference, String> {
        if path == b"/missing" {
            return Err("no such file".to_owned());
        }
        Ok(Reference { atime: i64::MAX, mtime: i64::MIN, ctime: 3, btime: None, node: Some(77) })
    }

    fn time(&self, text: &[u8]) -> Option<i64> {
        (text == b"2024-05-31").then_some(i64::MAX)
    }

    fn letters(&self) -> Letters {
        Letters::Utf8
    }
}

struct Nobody;

impl Accounts for Nobody {
    fn has_user(&self, _: u32) -> bool {
        false
    }

    fn has_group(&self, _: u32) -> bool {
        false
    }
}

impl Details for Nobody {
    fn target(&self, _: &Row<'_>) -> search::Result<Vec<u8>> {
        Ok(b"target".to_vec())
    }

    fn xattr(&self, _: &Row<'_>, name: &[u8]) -> search::Result<Option<Vec<u8>>> {
        Ok((name == b"user.a").then(|| b"bb".to_vec()))
    }
}

/// Evaluates an expression on rows, and splits it as searches do.
pub(crate) fn ask(expr: &Expr) {
    let caller = Caller {
        uid: 7,
        gid: 7,
        groups: vec![50],
        enforce: Enforce::Here,
        umask: 0,
        pid: 0,
        ends: Ends::NONE,
    };
    let (reaching, outcome) = (expr.reaching_action(), expr.outcome());
    let prunes = expr.prunes();
    seen(expr.asks_path() | expr.quits() | expr.within_bounds());
    let mut random = Rng::with_seed(1);
    for n in 0..6_u8 {
        let name = name(&mut random, 9);
        let xattrs = bytes(&mut random, 3);
        let edge = [0, 1, u64::MAX, 1 << 63, 4096, 7][usize::from(n)];
        let row = Row {
            directory: edge,
            cookie: edge,
            ino: edge >> 24,
            name: &name,
            kind: FileKind::decode(n + 1).expect("invariant: kinds are 1 to 7"),
            mode: u32::from(n) * 0o111,
            uid: edge as u32,
            gid: edge as u32,
            nlink: edge as u32,
            rdev: 0,
            size: edge,
            allocated: edge,
            entries: edge,
            atime: edge as i64,
            mtime: edge as i64,
            ctime: edge as i64,
            btime: edge as i64,
            subvolume: 0,
            xattrs: &xattrs,
        };
        let path = [&b"./a/"[..], &name].concat();
        let context = Context {
            row: &row,
            path: &path,
            depth: u32::from(n),
            subvolume: 1,
            details: &Nobody,
            caller: &caller,
            accounts: &Nobody,
            cancel: &std::sync::atomic::AtomicBool::new(false),
        };
        let mut fired = Fired::default();
        seen(expr.eval(&context, &mut fired));
        seen((reaching.matches(&context), outcome.matches(&context)));
        seen(prunes.as_ref().map(|prunes| prunes.matches(&context)));
    }
}
