//! Turns an expression with actions into the expressions that executors need: which rows reach an
//! action, and which directories are not descended into.

use super::expr::Expr;

impl Expr {
    /// An expression without actions that is true of exactly the rows that reach an action that
    /// emits something, or ends the query.
    #[must_use]
    pub fn reaching_action(&self) -> Expr {
        reached(self, &|leaf| matches!(leaf, Expr::Action(_) | Expr::Quit))
    }

    /// An expression without actions that is true of exactly the rows that reach `-prune`; `None`
    /// if there is no such row.
    pub fn prunes(&self) -> Option<Expr> {
        let pruned = reached(self, &|leaf| matches!(leaf, Expr::Prune));
        (pruned != Expr::no()).then_some(pruned)
    }

    /// The expression with its actions replaced by their value: true.
    #[must_use]
    pub fn outcome(&self) -> Expr {
        match self {
            Expr::Test(_) => self.clone(),
            Expr::All(parts) => all(parts.iter().map(Expr::outcome)),
            Expr::Any(parts) => any(parts.iter().map(Expr::outcome)),
            Expr::List(parts) => parts.last().map_or_else(Expr::yes, Expr::outcome),
            Expr::Not(part) => not(part.outcome()),
            Expr::Action(_) | Expr::Prune | Expr::Quit => Expr::yes(),
        }
    }
}

fn reached(expr: &Expr, leaf: &dyn Fn(&Expr) -> bool) -> Expr {
    match expr {
        Expr::Test(_) => Expr::no(),
        Expr::Action(_) | Expr::Prune | Expr::Quit => {
            if leaf(expr) {
                Expr::yes()
            } else {
                Expr::no()
            }
        }
        Expr::Not(part) => reached(part, leaf),
        Expr::All(parts) => reached_in(parts, leaf, |outcome| outcome),
        Expr::Any(parts) => reached_in(parts, leaf, not),
        Expr::List(parts) => any(parts.iter().map(|part| reached(part, leaf))),
    }
}

/// The condition for reaching a leaf in parts that are each evaluated if those before allow it
/// (`passes`). Flat, so that many parts do not make it deep.
fn reached_in(parts: &[Expr], leaf: &dyn Fn(&Expr) -> bool, passes: impl Fn(Expr) -> Expr) -> Expr {
    let mut ways = Vec::new();
    let mut before = Vec::new();
    for part in parts {
        let reached = reached(part, leaf);
        let passed = passes(part.outcome());
        // In `a -print -o b -print`, the conditions to reach the first action and to continue
        // exclude each other. So the second one need not repeat that.
        let repeated = passed == not(reached.clone());
        if reached != Expr::no() {
            let before: Vec<Expr> = before.clone();
            ways.push(all(before.into_iter().chain([reached])));
        }
        if !repeated {
            before.push(passed);
        }
    }
    any(ways)
}

/// All of these, simplified.
pub(super) fn all(parts: impl IntoIterator<Item = Expr>) -> Expr {
    let mut kept = Vec::new();
    for part in parts {
        match part {
            Expr::All(inner) => kept.extend(inner),
            part if part == Expr::no() => return part,
            part => kept.push(part),
        }
    }
    if kept.len() == 1 { kept.remove(0) } else { Expr::All(kept) }
}

/// One of these, simplified.
pub(super) fn any(parts: impl IntoIterator<Item = Expr>) -> Expr {
    let mut kept = Vec::new();
    for part in parts {
        match part {
            Expr::Any(inner) => kept.extend(inner),
            part if part == Expr::yes() => return part,
            part => kept.push(part),
        }
    }
    if kept.len() == 1 { kept.remove(0) } else { Expr::Any(kept) }
}

/// The opposite, simplified.
pub(super) fn not(part: Expr) -> Expr {
    match part {
        Expr::Not(inner) => *inner,
        part if part == Expr::yes() => Expr::no(),
        part if part == Expr::no() => Expr::yes(),
        part => Expr::Not(Box::new(part)),
    }
}
