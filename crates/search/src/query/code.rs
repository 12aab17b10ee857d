//! Expressions as they cross a socket: a flat list of operators and tests in prefix order, so that
//! decoding does not recurse, whatever the other side sends.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::expr::{ACTIONS_MAX, DEPTH_MAX, Expr, NODES_MAX, Test};

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
        build(tokens).ok_or_else(|| serde::de::Error::custom("not an expression"))
    }
}

impl Expr {
    /// Whether the expression is within the bounds of one that can be sent.
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
                // What reaches each is made of all that stands before it.
                Expr::Action(_) | Expr::Prune | Expr::Quit => {
                    *actions += 1;
                    *actions <= ACTIONS_MAX
                }
            }
        }
        measure(self, 0, &mut 0, &mut 0)
    }
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

/// Gives a finished part to the operator that waits for it, and on; the whole when none waits.
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
    use super::super::expr::{ACTIONS_MAX, Expr};

    #[test]
    fn an_expression_of_too_many_actions_is_out_of_bounds() {
        let of = |count: usize| Expr::List(vec![Expr::Action(0); count]);
        assert!(of(ACTIONS_MAX).within_bounds());
        assert!(!of(ACTIONS_MAX + 1).within_bounds());
    }
}
