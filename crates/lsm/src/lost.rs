//! Finds the keys of a tree that damage hides. A damaged block hides its keys, bounded by the first
//! keys of the blocks in its run's index. If the index itself is damaged, all keys from there on
//! are hidden. A damaged row hides one key.

use std::ops::Bound;
use std::sync::Arc;

use format::Corruption;
use store::{Error, LostRange, Result};

use crate::key::Direction;
use crate::layer::{Stack, View};
use crate::merge::{From, Merge, Tombstones};
use crate::run::{Caching, Run};

/// The first range from `key` on that cannot be read, if there is one.
pub(crate) fn lost_from(stack: &Stack, key: &[u8]) -> Result<Option<LostRange>> {
    let views: Vec<View> = stack.layers.iter().map(|layer| layer.view()).collect();
    let mut from = key.to_vec();
    let bound = Bound::Included(key);
    let begin = From { direction: Direction::Forward, bound, caching: Caching::Keep };
    let failed = match Merge::new(views.iter(), begin) {
        Err(error) => error,
        Ok(mut merge) => loop {
            match merge.advance(Tombstones::Skip) {
                Ok(false) => return Ok(None),
                Ok(true) => {}
                Err(error) => break error,
            }
            let Some((key, content)) = merge.current() else { unreachable!("it is at an entry") };
            from = [key, &[0]].concat();
            match content.read(key, &mut |_| ()) {
                Ok(_) => {}
                Err(error) => {
                    let damage = damage_of(error)?;
                    return Ok(Some(LostRange { from: key.to_vec(), to: Some(from), damage }));
                }
            }
        },
    };
    let damage = damage_of(failed)?;
    let to = behind(&views, &from)?;
    Ok(Some(LostRange { from, to, damage }))
}

/// Damage, or a read error of the disk; anything else stays an error.
fn damage_of(error: Error) -> Result<Arc<Corruption>> {
    match error.as_damage() {
        Error::Corrupt(damage) => Ok(damage),
        error => Err(error),
    }
}

/// A block of a run that is being checked.
#[derive(Clone, Copy)]
struct Head<'a> {
    run: &'a Run,
    block: usize,
}

impl<'a> Head<'a> {
    fn first_key(&self) -> Result<&'a [u8]> {
        Ok(self.run.index()?.blocks.first_key(self.block))
    }
}

/// Where keys are readable again behind the first damaged block that may have any from `key` on.
/// Checks blocks of all runs in the order of their keys, so it reads none behind that position.
fn behind(views: &[View], key: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut heads = Vec::new();
    for view in views {
        let View::Run(run) = view else { continue };
        let blocks = match run.index() {
            Ok(index) => &index.blocks,
            Err(error) => return damage_of(error).map(|_| None),
        };
        if key <= blocks.last_key() && !blocks.blocks().is_empty() {
            heads.push(Head { run, block: blocks.last_not_above(key).unwrap_or(0) });
        }
    }
    loop {
        let mut next: Option<(usize, &[u8])> = None;
        for (at, head) in heads.iter().enumerate() {
            let first = head.first_key()?;
            if next.is_none_or(|(_, least)| first < least) {
                next = Some((at, first));
            }
        }
        let Some((at, _)) = next else { return Ok(None) };
        let Head { run, block } = heads[at];
        let blocks = &run.index()?.blocks;
        let last = block + 1 == blocks.blocks().len();
        match run.block(block, Caching::Keep) {
            Ok(_) if last => drop(heads.swap_remove(at)),
            Ok(_) => heads[at].block += 1,
            Err(error) => {
                damage_of(error)?;
                return Ok(Some(if last {
                    [blocks.last_key(), &[0]].concat()
                } else {
                    blocks.first_key(block + 1).to_vec()
                }));
            }
        }
    }
}
