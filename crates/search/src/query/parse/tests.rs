//! Parsed arguments, rejected arguments, and that no arguments cause a panic.

use super::{Command, ParseError, Reference, Surroundings, What, operands, parse};
use crate::condition::Attribute;
use crate::query::parse::numbers::{LEAST, MOST};
use crate::query::{Expr, Letters, Test, search_box};

const DAY: i64 = 86_400_000_000_000;
const NOW: i64 = 20_000 * DAY + DAY / 2;

struct Around;

impl Surroundings for Around {
    fn now(&self) -> i64 {
        NOW
    }

    fn day_start(&self) -> i64 {
        20_000 * DAY
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
        Ok(Reference { atime: 1, mtime: 2, ctime: 3, btime: None, node: Some(77) })
    }

    fn time(&self, text: &[u8]) -> Option<i64> {
        (text == b"2024-05-31").then_some(DAY)
    }

    fn letters(&self) -> Letters {
        Letters::Utf8
    }
}

fn command(words: &str) -> Result<Command, ParseError> {
    let arguments: Vec<Vec<u8>> = words.split_whitespace().map(|word| word.into()).collect();
    parse(&arguments, &Around)
}

fn refused(words: &str, why: &str) {
    let error = command(words).expect_err(words);
    assert!(error.message.starts_with(why), "{words}: {error:?}");
}

fn expr(words: &str) -> Expr {
    command(words).unwrap_or_else(|error| panic!("{words}: {error}")).expr
}

/// The range of a single test.
fn range(words: &str) -> (i128, i128) {
    match command(words).unwrap().expr.reaching_action() {
        Expr::Test(Test::Within(_, low, high)) => (low, high),
        other => panic!("{words}: {other:?}"),
    }
}

fn error(words: &str) -> String {
    command(words).unwrap_err().message
}

#[test]
fn operators_bind_as_in_gnu_find() {
    let same = |one: &str, other: &str| assert_eq!(expr(one), expr(other), "{one} and {other}");
    same("-true -o -false -empty", "-true -o ( -false -empty )");
    same("-true -a -not -false", "-true ! -false");
    same("-empty , -true -o -false", "-empty , ( -true -o -false )");
    same("! ! -empty", "-empty");
    let reaching = expr("! -daystart -mtime 1").reaching_action();
    assert_eq!(reaching, expr("-daystart ! -mtime 1").reaching_action());
    assert_eq!(expr("! -maxdepth 1 -mtime 1").reaching_action(), Expr::no());
    same("-daystart -mtime 1", "( -daystart -mtime 1 )");
    assert_ne!(expr("-true -o -false -print"), expr("( -true -o -false ) -print"));
    assert!(matches!(expr("-empty , -true -print"), Expr::List(_)));
}

#[test]
fn print_is_implied_unless_there_is_an_action() {
    assert_eq!(expr(""), Expr::Action(0));
    assert_eq!(expr("-empty"), expr("-empty -print"));
    assert_eq!(expr("-empty -prune").reaching_action(), expr("-empty").reaching_action());
    let found = command("-empty -print0 -o -printf %p").unwrap();
    assert_eq!(found.actions.len(), 2);
    assert_eq!(found.actions[0].what, What::Print0);
    assert_eq!(command("-empty -count").unwrap().actions.len(), 1);
}

#[test]
fn operators_decide_which_rows_reach_actions() {
    let reaching = |words: &str| expr(words).reaching_action();
    assert_eq!(reaching("-empty -print -o -nouser -print0"), reaching("-empty -o -nouser"));
    assert_eq!(reaching("-print -empty"), Expr::yes());
    assert_eq!(reaching("-false -print"), Expr::no());
    assert_eq!(reaching("-empty -o -print"), reaching("! -empty"));
    assert_eq!(reaching("-nouser -prune -o -empty -print"), reaching("! -nouser -empty"));
    assert_eq!(expr("-nouser -prune -o -print").prunes(), Some(reaching("-nouser")));
    assert_eq!(expr("-nouser").prunes(), None);
    assert_eq!(reaching("-empty , -print"), Expr::yes());
}

#[test]
fn sizes_are_rounded_up_to_units() {
    assert_eq!(range("-size 1"), (1, 512));
    assert_eq!(range("-size 0c"), (0, 0));
    assert_eq!(range("-size +1M"), ((1 << 20) + 1, MOST));
    assert_eq!(range("-size -1M"), (LEAST, 0));
    assert_eq!(range("-size 3w"), (5, 6));
    refused("-size", "-size needs an argument");
    for wrong in ["x", "1x", "+", "-1-", "1.5k"] {
        let why =
            "-size needs a number with one of the units b (512 bytes), c (bytes), w (2 bytes)";
        refused(&format!("-size {wrong}"), &format!("{why}, k, M, G, not '{wrong}'"));
    }
}

#[test]
fn ages_are_cut_to_whole_days_and_minutes() {
    let now = i128::from(NOW);
    let day = i128::from(DAY);
    assert_eq!(range("-mtime 0"), (now - day + 1, now));
    assert_eq!(range("-mtime +1"), (LEAST, now - 2 * day - 1));
    assert_eq!(range("-mtime -1"), (now - day - 1_000_000_000 + 1, MOST));
    assert_eq!(range("-mmin -10"), (now - 600_000_000_000 + 1, MOST));
    assert_eq!(range("-daystart -mtime 0"), (20_000 * day + 1, 20_001 * day));
    assert_eq!(range("-mtime 0.5"), (now - day * 3 / 2 + 1, now - day / 2));
    assert_eq!(range("-newer /x"), (3, MOST));
    assert_eq!(range("-neweraa /x"), (2, MOST));
    assert_eq!(range("-newermt 2024-05-31"), (day + 1, MOST));
    assert_eq!(range("-samefile /x"), (77, 77));
    for (wrong, why) in [
        ("-newermt x", "-newermt: 'x' is not a point in time"),
        ("-newerBB /x", "-newerBB: the birth time of '/x' is not known"),
        ("-newerxx /x", "there is no test, option or action -newerxx"),
        ("-mtime x", "-mtime needs a number, '+N' or '-N', not 'x'"),
        ("-newer /missing", "-newer '/missing': no such file"),
    ] {
        refused(wrong, why);
    }
}

#[test]
fn errors_name_the_argument() {
    for (words, part) in [
        ("-foo", "-foo"),
        ("-name", "-name"),
        ("-empty x", "'x'"),
        ("( -empty", "')'"),
        ("-empty )", "')'"),
        ("( )", "'(' and ')'"),
        ("-o -empty", "'-o'"),
        ("-empty -o", "'-o'"),
        ("-empty -a -o -true", "'-a' and '-o'"),
        ("!", "'!'"),
        ("-user nobody-here", "nobody-here"),
        ("-type q", "'q'"),
        ("-type f,f", "'f,f'"),
        ("-perm 9", "'9'"),
        ("-perm +644", "+644"),
        ("-regextype perl", "perl"),
        ("-regex [", "'['"),
        ("-maxdepth -1", "'-1'"),
        ("-exec true ;", "-exec"),
        ("-delete", "-delete"),
        ("-xtype l", "-xtype"),
        ("-printf %T", "%T"),
    ] {
        assert!(error(words).contains(part), "{words}: {}", error(words));
    }
    assert!(command("-exec x ;").unwrap_err().hint.unwrap().contains("xargs -0"));
    assert_eq!(command("-name a/b").unwrap().warnings.len(), 1);
    assert_eq!(command("-empty -maxdepth 1").unwrap().warnings.len(), 1);
    assert_eq!(command("-maxdepth 1 -empty").unwrap().warnings.len(), 0);
    let deep = "( ".repeat(1000) + "-true" + &" )".repeat(1000);
    assert!(error(&deep).contains("'('"));
}

#[test]
fn a_search_box_means_the_same_in_fewer_letters() {
    let of = |text: &str| search_box::parse(text.as_bytes(), &Around);
    let same = |text: &str, words: &str| {
        assert_eq!(
            of(text).unwrap_or_else(|e| panic!("{text}: {e}")),
            expr(words).reaching_action(),
            "{text}"
        );
    };
    same("owner:alice", "-user alice");
    same("size:>1M type:file,dir", "-size +1048576c ( -type f -o -type d )");
    same("uid:>=5 links:<3", "-uid +4 -links -3");
    same("!type:dir OR is:empty", "! -type d -o -empty");
    same("*.H5", "-name *.H5");
    same("*.h5", "-iname *.h5");
    same("report", "-icontains report");
    same("\"Two\"", "-contains Two");
    same("ext:h5,nc", "-iname *.h5 -o -iname *.nc");
    same("perm:/022", "-perm /022");
    same("xattr:user.a=b*", "-xattr user.a=b*");
    same("", "-true");
    let within = |text: &str| match of(text).unwrap() {
        Expr::Test(Test::Within(attribute, low, high)) => (attribute, low, high),
        other => panic!("{other:?}"),
    };
    let (now, day) = (i128::from(NOW), i128::from(DAY));
    assert_eq!(within("mtime:<30d"), (Attribute::Mtime, now - 30 * day, MOST));
    assert_eq!(within("mtime:>=2024-05-31"), (Attribute::Mtime, day, MOST));
    assert_eq!(within("atime:2024-05-31"), (Attribute::Atime, day, 2 * day - 1));
    assert_eq!(within("size:1k..2M"), (Attribute::Size, 1024, 2 << 20));
    for (wrong, why) in [
        ("size:x", "size:x: write 10M, >1G, <=4k, or 1M..2M"),
        ("mtime:30d", "mtime:30d: write an age"),
        ("color:red", "there is no 'color:', but name, path"),
        ("type:x", "type:x: the types are file, dir"),
        ("owner:", "'owner:' needs a value"),
        ("\"a", "'\"a': a quote is not closed"),
        ("OR a", "OR needs words on both sides"),
        ("is:x", "is:x: the qualities are empty"),
    ] {
        let error = of(wrong).expect_err(wrong);
        assert!(error.message.starts_with(why), "{wrong}: {error:?}");
    }
}

#[test]
fn random_arguments_never_panic() {
    let words: Vec<&str> = "( ) ! , -o -a -not -name *.h5 -size +1G 5 -1 [a x -print -printf %p%% \
                            %- -regex \\( -perm -u+w /7 -mtime 1e400 -newermt -type f,d -prune \
                            -quit -depth -maxdepth -daystart -regextype posix-extended a{1,2 \
                            -xattr user.a=b -query size:>1G \u{e9} -inum -user alice -fprintf out \
                            %Tc -ls -count -samefile -used -newerXY - -- -lname"
        .split_whitespace()
        .collect();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut understood = 0;
    for _ in 0..100_000 {
        let count = random.usize(0..8);
        let arguments: Vec<Vec<u8>> = (0..count)
            .map(|_| {
                if random.u8(..) < 20 {
                    (0..random.usize(0..6)).map(|_| random.u8(1..)).collect()
                } else {
                    words[random.usize(..words.len())].into()
                }
            })
            .collect();
        understood += u32::from(parse(&arguments, &Around).is_ok());
        let text = arguments.join(&b' ');
        let read = search_box::parse(&text, &Around);
        assert!(read.is_err() || read.is_ok_and(|expr| expr.within_bounds()));
    }
    assert!(understood > 1000, "{understood} of 100000 were expressions");
}

/// Whether an expression of a search box matches a text.
fn regex_matches(word: &str, text: &str) -> bool {
    let parsed = search_box::parse(word.as_bytes(), &Around);
    match parsed.unwrap_or_else(|error| panic!("{word}: {}", error.message)) {
        Expr::Test(Test::NameRegex(regex) | Test::PathRegex(regex)) => {
            regex.matches(text.as_bytes())
        }
        other => panic!("{word}: {other:?}"),
    }
}

#[test]
fn a_search_box_expression_matches_a_part_unless_anchored() {
    for key in ["name", "path"] {
        for (regex, yes, no) in [
            ("port", &["port", "report.txt", "ports"][..], &["prt", ""][..]),
            ("^rep", &["report"], &["a report", "a\nreport"]),
            ("txt$", &["a.txt"], &["a.txt.gz", "a.txt\n", "a.txt\nb"]),
            ("^report$", &["report"], &["reports", "report\n", "a\nreport\nb"]),
            ("(?m)^b$", &["a\nb\nc", "b"], &["a\nbb"]),
            ("a.c", &["abc", "a\nc", "xabcx"], &["ac"]),
            ("a|^b", &["xa", "bx"], &["xb"]),
            (r"\d{2,3}x", &["12x", "x123x"], &["1x"]),
            ("/old/[^/]*$", &["/vol/old/f"], &["/vol/old/a/b", "/volold/f"]),
        ] {
            let word = format!("{key}:~{regex}");
            for text in yes {
                assert!(regex_matches(&word, text), "{word} matches {text:?}");
            }
            for text in no {
                assert!(!regex_matches(&word, text), "{word} does not match {text:?}");
            }
        }
    }
    // A backslash between quotes is written twice.
    assert!(regex_matches(r#"name:~"two words\\.txt$""#, "my two words.txt"));
    assert!(!regex_matches(r#"name:~"two words\\.txt$""#, "my two words_txt"));
}

#[test]
fn an_expression_without_capital_letters_matches_letters_of_either_case() {
    for (word, text, matches) in [
        ("name:~report", "REPORT", true),
        ("name:~caf\u{e9}", "CAF\u{c9}", true),
        ("name:~Report", "report", false),
        ("name:~Report", "a Report", true),
        ("name:~\u{c9}", "\u{e9}", false),
        ("name:~(?i)Report", "REPORT", true),
        ("name:~(?-i)report", "REPORT", false),
        // These letters are no literals of the expression.
        (r"name:~^\S+\Breport\D$", "MYREPORTX", true),
        (r"name:~^\pL\p{Greek}x", "\u{410}\u{3b1}X", true),
        (r"name:~\x4Aoe", "jOE", true),
        (r"name:~\x{4A}oe", "jOE", true),
        (r"name:~\u004Aoe", "jOE", true),
        ("name:~(?P<Name>re)port", "REPORT", true),
        // These letters are literals.
        ("name:~(?:Re)port", "report", false),
        (r"name:~\\S", r"\s", false),
        ("path:~/OLD/", "/old/", false),
    ] {
        assert_eq!(regex_matches(word, text), matches, "{word} {text:?}");
    }
    assert!(search_box::parse(b"name:~(", &Around).is_err_and(|e| e.message.contains("'~('")));
    let not_utf8 = search_box::parse(b"name:~\xff", &Around);
    assert!(not_utf8.is_err_and(|e| e.message.contains("the expression is not UTF-8")));
}

/// `operands` is a second list of the words; a program that splits paths from an expression uses
/// it before the expression is parsed.
#[test]
fn operands_are_those_that_each_word_takes() {
    let source = include_str!("primaries.rs");
    let quoted = source.split("b\"").skip(1).filter_map(|rest| rest.split('"').next());
    let words: Vec<&str> = quoted.filter(|word| word.len() > 2 && word.starts_with('-')).collect();
    assert!(words.len() > 60, "the source is not read: {words:?}");
    for word in words {
        let error = command(word).err().map(|error| error.message).unwrap_or_default();
        let takes = error.ends_with("needs an argument");
        assert_eq!(operands(word.as_bytes()) > 0, takes || word == "-newerXY", "{word}: {error}");
    }
}
