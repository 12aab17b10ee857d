//! Expressions in socket messages: a flat list of operators and tests in prefix order, so that
//! decoding does not recurse, whatever the other side sends.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::expr::{ACTIONS_MAX, DEPTH_MAX, Expr, NODES_MAX, Test};
use super::regex::{MEMORY_MAX, Regex, RegexError};

/// Maximum regular expressions of an expression, their total bytes, and the memory of each compiled
/// form of them.
const REGEXES_MAX: usize = 32;
const REGEX_BYTES_MAX: usize = 16 << 10;
const REGEX_MEMORY_MAX: usize = 4 << 20;

#[derive(Debug, Serialize, Deserialize)]
enum Token {
    All(u32),
    Any(u32),
    List(u32),
    Not,
    Test(Test),
    Action(u16),
    Prune,
    Quit,
}

/// An operator whose parts are still being read.
struct Open {
    kind: Kind,
    wanted: usize,
    parts: Vec<Expr>,
}

enum Kind {
    All,
    Any,
    List,
    Not,
}

impl Serialize for Expr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tokens = Vec::new();
        push(self, &mut tokens);
        tokens.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Expr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Expr, D::Error> {
        let tokens = Vec::<Token>::deserialize(deserializer)?;
        let mut expr =
            build(tokens).ok_or_else(|| serde::de::Error::custom("not an expression"))?;
        if !expr.within_bounds() {
            return Err(serde::de::Error::custom("an expression out of bounds"));
        }
        compile(&mut expr).map_err(serde::de::Error::custom)?;
        Ok(expr)
    }
}

impl Expr {
    /// Whether the expression is within the bounds for sending.
    pub fn within_bounds(&self) -> bool {
        fn measure(expr: &Expr, depth: usize, nodes: &mut usize, actions: &mut usize) -> bool {
            *nodes += 1;
            if depth > DEPTH_MAX || *nodes > NODES_MAX {
                return false;
            }
            match expr {
                Expr::All(parts) | Expr::Any(parts) | Expr::List(parts) => {
                    parts.iter().all(|part| measure(part, depth + 1, nodes, actions))
                }
                Expr::Not(part) => measure(part, depth + 1, nodes, actions),
                Expr::Test(_) => true,
                // The condition to reach each is built from everything before it.
                Expr::Action(_) | Expr::Prune | Expr::Quit => {
                    *actions += 1;
                    *actions <= ACTIONS_MAX
                }
            }
        }
        measure(self, 0, &mut 0, &mut 0)
    }
}

/// Passes all regular expressions of an expression.
fn each_regex(
    expr: &mut Expr,
    take: &mut dyn FnMut(&mut Regex) -> Result<(), RegexError>,
) -> Result<(), RegexError> {
    match expr {
        Expr::All(parts) | Expr::Any(parts) | Expr::List(parts) => {
            parts.iter_mut().try_for_each(|part| each_regex(part, take))
        }
        Expr::Not(part) => each_regex(part, take),
        Expr::Test(Test::NameRegex(regex) | Test::PathRegex(regex)) => take(regex),
        Expr::Test(_) | Expr::Action(_) | Expr::Prune | Expr::Quit => Ok(()),
    }
}

/// Compiles the regular expressions of a message, if they are few and short enough. The total
/// memory limit also bounds the time.
fn compile(expr: &mut Expr) -> Result<(), RegexError> {
    let (mut count, mut bytes) = (0, 0);
    each_regex(expr, &mut |regex| {
        count += 1;
        bytes += regex.length();
        Ok(())
    })?;
    if count > REGEXES_MAX || bytes > REGEX_BYTES_MAX {
        return Err(RegexError::many(REGEXES_MAX, REGEX_BYTES_MAX));
    }
    let memory = (REGEX_MEMORY_MAX / count.max(1)).min(MEMORY_MAX);
    each_regex(expr, &mut |regex| regex.compile(memory))
}

fn push(expr: &Expr, tokens: &mut Vec<Token>) {
    let (token, parts) = match expr {
        Expr::All(parts) => (Token::All(parts.len() as u32), &parts[..]),
        Expr::Any(parts) => (Token::Any(parts.len() as u32), &parts[..]),
        Expr::List(parts) => (Token::List(parts.len() as u32), &parts[..]),
        Expr::Not(part) => (Token::Not, std::slice::from_ref(&**part)),
        Expr::Test(test) => (Token::Test(test.clone()), &[][..]),
        Expr::Action(number) => (Token::Action(*number), &[][..]),
        Expr::Prune => (Token::Prune, &[][..]),
        Expr::Quit => (Token::Quit, &[][..]),
    };
    tokens.push(token);
    for part in parts {
        push(part, tokens);
    }
}

fn build(tokens: Vec<Token>) -> Option<Expr> {
    if tokens.len() > NODES_MAX {
        return None;
    }
    let mut open: Vec<Open> = Vec::new();
    let mut tokens = tokens.into_iter();
    loop {
        let (kind, wanted) = match tokens.next()? {
            Token::All(count) => (Kind::All, count),
            Token::Any(count) => (Kind::Any, count),
            Token::List(0) => return None,
            Token::List(count) => (Kind::List, count),
            Token::Not => (Kind::Not, 1),
            leaf => {
                let leaf = match leaf {
                    Token::Test(test) => Expr::Test(test),
                    Token::Action(number) => Expr::Action(number),
                    Token::Prune => Expr::Prune,
                    _ => Expr::Quit,
                };
                match put(&mut open, leaf) {
                    None => continue,
                    Some(whole) => return tokens.next().is_none().then_some(whole),
                }
            }
        };
        if open.len() >= DEPTH_MAX {
            return None;
        }
        let next = Open { kind, wanted: wanted as usize, parts: Vec::new() };
        if next.wanted > 0 {
            open.push(next);
        } else if let Some(whole) = put(&mut open, close(next)?) {
            return tokens.next().is_none().then_some(whole);
        }
    }
}

/// Passes a finished part to the operator that waits for it, and so on; returns the whole
/// expression if none waits.
fn put(open: &mut Vec<Open>, part: Expr) -> Option<Expr> {
    let mut part = part;
    loop {
        let Some(last) = open.last_mut() else { return Some(part) };
        last.parts.push(part);
        if last.parts.len() < last.wanted {
            return None;
        }
        part = open.pop().and_then(close)?;
    }
}

fn close(open: Open) -> Option<Expr> {
    Some(match open.kind {
        Kind::All => Expr::All(open.parts),
        Kind::Any => Expr::Any(open.parts),
        Kind::List => Expr::List(open.parts),
        Kind::Not => Expr::Not(Box::new(open.parts.into_iter().next()?)),
    })
}

#[cfg(test)]
mod bounds {
    use super::super::expr::{ACTIONS_MAX, Expr, Test};
    use super::super::glob::Letters;
    use super::super::regex::{Dialect, Regex};
    use super::REGEXES_MAX;

    #[test]
    fn regular_expressions_of_a_message_are_compiled_within_bounds() {
        let regex = |pattern: &[u8]| {
            let regex = Regex::new(pattern, Dialect::Extended, false, Letters::Utf8);
            Expr::Test(Test::PathRegex(regex.expect("it is one")))
        };
        let sent = |expr: &Expr| {
            let bytes = postcard::to_stdvec(expr).expect("it can be sent");
            postcard::from_bytes::<Expr>(&bytes)
        };
        let few = Expr::Any(vec![regex(b".*a+"); REGEXES_MAX]);
        assert_eq!(sent(&few).ok(), Some(few));
        let many = Expr::Any(vec![regex(b".*a+"); REGEXES_MAX + 1]);
        assert_eq!(sent(&many), Err(postcard::Error::SerdeDeCustom));
        let long = Expr::Any(vec![regex(&[b'a'; 1000]); 17]);
        assert_eq!(sent(&long), Err(postcard::Error::SerdeDeCustom));
        // Each fits by itself, all together do not.
        let large = Expr::Any(vec![regex(b"(a{100}){200}"); 24]);
        assert_eq!(sent(&large), Err(postcard::Error::SerdeDeCustom));
    }

    #[test]
    fn an_expression_of_too_many_actions_is_refused() {
        let of = |count: usize| Expr::List(vec![Expr::Action(0); count]);
        assert!(of(ACTIONS_MAX).within_bounds());
        assert!(!of(ACTIONS_MAX + 1).within_bounds());
    }
}
