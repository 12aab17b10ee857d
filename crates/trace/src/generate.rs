//! Makes traces with the mixes of two published workloads.
//!
//! * `hp`: the metadata requests of 21 hours of a time-sharing system of HP, as Table 1 of the
//!   paper on FPFS counts them.
//! * `linkedin`: the mix of a day of a LinkedIn HDFS cluster, as section III.B of the paper on
//!   IndexFS states it. It has 84 % look-ups, 9 % creations and 7 % updates. The split within a
//!   class is ours. Look-ups are half stats and half opens. One creation in seven makes a
//!   directory, as the cluster had six files in each. Updates are chmod, unlink and rename alike.
//!
//! What no paper states is ours too: files are empty, and the popularity of directories and files
//! falls with the cube of their rank. A name is looked up before it is first used, as a kernel
//! does. These look-ups count as such, so the shares are those of the mix. The same seed makes the
//! same trace.

use fastrand::Rng;
use format::trace::{Call, Event, Header, Setting, Shown};

use crate::TraceError;

/// A published workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// The mix of FPFS.
    Hp,
    /// The mix of IndexFS.
    Linkedin,
}

/// What an event does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Lookup,
    Stat,
    Open,
    Create,
    Mkdir,
    Unlink,
    Rmdir,
    RenameFile,
    RenameDirectory,
    Chmod,
}

impl Mix {
    /// Each class, with its count among the requests of the workload.
    fn classes(self) -> &'static [(Class, u64)] {
        match self {
            Mix::Hp => &[
                (Class::Lookup, 13_908_189),
                (Class::Stat, 2_827_387),
                (Class::Open, 2_572_124),
                (Class::Unlink, 67_883),
                (Class::Create, 41_755),
                (Class::RenameFile, 7_683),
                (Class::Mkdir, 7_389),
                (Class::Rmdir, 6_973),
                (Class::RenameDirectory, 5),
            ],
            Mix::Linkedin => &[
                (Class::Lookup, 4_200),
                (Class::Open, 4_200),
                (Class::Create, 771),
                (Class::Mkdir, 129),
                (Class::Chmod, 233),
                (Class::Unlink, 233),
                (Class::RenameFile, 234),
            ],
        }
    }

    /// Mean time between two requests, in nanoseconds: requests over hours.
    fn step_nanos(self) -> u64 {
        match self {
            Mix::Hp => 21 * 3_600_000_000_000 / 19_439_388,
            Mix::Linkedin => 24 * 3_600_000_000_000 / 145_000_000,
        }
    }

    fn files_a_directory(self) -> u64 {
        match self {
            Mix::Hp => 10,
            Mix::Linkedin => 6,
        }
    }
}

/// What to generate.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The workload.
    pub mix: Mix,
    /// Number of events.
    pub operations: u64,
    /// Number of files that are there when the trace begins, as far as it uses them.
    pub files: u64,
    /// The same seed makes the same trace.
    pub seed: u64,
}

struct Directory {
    node: u64,
    parent: usize,
    name: Vec<u8>,
    is_known: bool,
}

struct FileState {
    node: u64,
    directory: usize,
    name: Vec<u8>,
    is_known: bool,
}

struct Generator<'a, E> {
    plan: Plan,
    random: Rng,
    directories: Vec<Directory>,
    files: Vec<FileState>,
    /// Directories that nothing was put into, by place.
    spare: Vec<usize>,
    counts: Vec<u64>,
    made: u64,
    at: u64,
    next: u64,
    take: &'a mut dyn FnMut(&Event<'_>) -> Result<(), E>,
}

/// The header of a generated trace.
pub fn header(plan: &Plan) -> Header {
    let mut random = Rng::with_seed(plan.seed);
    let mut id = [0; 16];
    random.fill(&mut id);
    Header { id, started: 0, root: 1, anonymised: false, generated: true, opens: true }
}

/// Passes the events of a plan to `take`.
pub fn generate<E: From<TraceError>>(
    plan: &Plan,
    take: &mut dyn FnMut(&Event<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut generator = Generator {
        plan: *plan,
        random: Rng::with_seed(plan.seed),
        directories: vec![Directory { node: 1, parent: 0, name: Vec::new(), is_known: true }],
        files: Vec::new(),
        spare: Vec::new(),
        counts: vec![0; plan.mix.classes().len()],
        made: 0,
        at: 0,
        next: 2,
        take,
    };
    generator.begin();
    while !generator.is_done() {
        generator.step()?;
    }
    Ok(())
}

impl<E> Generator<'_, E> {
    /// Makes the tree that is there.
    fn begin(&mut self) {
        let directories = (self.plan.files / self.plan.mix.files_a_directory()).max(1);
        for number in 0..directories {
            let parent = self.random.usize(..self.directories.len());
            let (node, name) = (self.number(), format!("d{number}").into_bytes());
            self.directories.push(Directory { node, parent, name, is_known: false });
        }
        for number in 0..self.plan.files.max(1) {
            let directory = self.random.usize(..self.directories.len());
            let (node, name) = (self.number(), format!("f{number}").into_bytes());
            self.files.push(FileState { node, directory, name, is_known: false });
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn is_done(&self) -> bool {
        self.made >= self.plan.operations
    }

    fn shown(node: u64, kind: u8) -> Shown {
        let mode = if kind == 1 { 0o755 } else { 0o644 };
        Shown { node, kind, mode, ..Shown::default() }
    }

    /// Passes an event on, and counts it.
    fn emit(&mut self, class: Class, event: Event<'_>) -> Result<(), E> {
        if self.is_done() {
            return Ok(());
        }
        let at = self.plan.mix.classes().iter().position(|(other, _)| *other == class);
        if let Some(count) = at.and_then(|at| self.counts.get_mut(at)) {
            *count += 1;
        }
        self.made += 1;
        self.at += self.random.u64(..=2 * self.plan.mix.step_nanos());
        (self.take)(&Event { at: self.at, ..event })
    }

    /// A place in a list of so many, the first ones more often.
    fn popular(&mut self, length: usize) -> usize {
        let place = self.random.f64().powi(3) * length as f64;
        (place as usize).min(length.saturating_sub(1))
    }

    /// Makes the event whose share lacks most.
    fn step(&mut self) -> Result<(), E> {
        let classes = self.plan.mix.classes();
        let all: u64 = classes.iter().map(|(_, weight)| weight).sum();
        let lack = |at: usize, weight: u64| {
            let due = u128::from(weight) * u128::from(self.made + 1) * 1024 / u128::from(all);
            due as i128 - i128::from(self.counts[at]) * 1024
        };
        let mut order: Vec<_> = classes.iter().enumerate().collect();
        order.sort_by_key(|(at, (_, weight))| std::cmp::Reverse(lack(*at, *weight)));
        for (_, (class, _)) in order {
            if self.make(*class)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// `false`: there is nothing that it could be done to.
    fn make(&mut self, class: Class) -> Result<bool, E> {
        match class {
            Class::Create | Class::Mkdir => self.create(class)?,
            Class::Rmdir => return self.rmdir(),
            Class::RenameDirectory => return self.rename_directory(),
            Class::Lookup
            | Class::Stat
            | Class::Open
            | Class::Unlink
            | Class::RenameFile
            | Class::Chmod => {
                if self.files.is_empty() {
                    return Ok(false);
                }
                let place = self.popular(self.files.len());
                self.of_file(class, place)?;
            }
        }
        Ok(true)
    }

    /// Looks up the directories on the way to one, if none has looked them up before.
    fn know_directory(&mut self, place: usize) -> Result<(), E> {
        let mut way = Vec::new();
        let mut at = place;
        while !self.directories[at].is_known {
            way.push(at);
            at = self.directories[at].parent;
        }
        for at in way.into_iter().rev() {
            let directory = &mut self.directories[at];
            directory.is_known = true;
            let (node, parent, name) = (directory.node, directory.parent, directory.name.clone());
            let parent = self.directories[parent].node;
            let found = Self::shown(node, 1);
            let event = Event { node: parent, name: &name, found, ..Event::new(Call::Lookup) };
            self.emit(Class::Lookup, event)?;
        }
        Ok(())
    }

    fn of_file(&mut self, class: Class, place: usize) -> Result<(), E> {
        let FileState { node, directory, is_known, .. } = self.files[place];
        self.know_directory(directory)?;
        let name = self.files[place].name.clone();
        let parent = self.directories[directory].node;
        let found = Self::shown(node, 0);
        if !is_known || class == Class::Lookup {
            self.files[place].is_known = true;
            let event = Event { node: parent, name: &name, found, ..Event::new(Call::Lookup) };
            self.emit(Class::Lookup, event)?;
        }
        match class {
            Class::Stat => self.emit(class, Event { node, found, ..Event::new(Call::Getattr) }),
            Class::Open => self.emit(class, Event { node, ..Event::new(Call::Open) }),
            Class::Chmod => {
                let how = Setting::MODE;
                let event = Event { node, how, mode: 0o644, found, ..Event::new(Call::Setattr) };
                self.emit(class, event)
            }
            Class::Unlink => {
                self.files.swap_remove(place);
                self.emit(class, Event { node: parent, name: &name, ..Event::new(Call::Unlink) })
            }
            Class::RenameFile => {
                let to = self.popular(self.directories.len());
                let to = if self.spare.contains(&to) { directory } else { to };
                self.know_directory(to)?;
                let new = format!("r{}", self.number()).into_bytes();
                let other = self.directories[to].node;
                let file = &mut self.files[place];
                (file.directory, file.name) = (to, new.clone());
                let event = Event {
                    node: parent,
                    name: &name,
                    other,
                    other_name: &new,
                    ..Event::new(Call::Rename)
                };
                self.emit(class, event)
            }
            _ => Ok(()),
        }
    }

    fn create(&mut self, class: Class) -> Result<(), E> {
        let mut parent = self.popular(self.directories.len());
        if self.spare.contains(&parent) {
            parent = 0;
        }
        self.know_directory(parent)?;
        let node = self.number();
        let above = self.directories[parent].node;
        if class == Class::Mkdir {
            let name = format!("m{node}").into_bytes();
            let (found, mode) = (Self::shown(node, 1), 0o755);
            let event = Event { node: above, name: &name, mode, found, ..Event::new(Call::Mkdir) };
            self.emit(class, event)?;
            self.spare.push(self.directories.len());
            self.directories.push(Directory { node, parent, name, is_known: true });
            // HP removes nearly as many directories as it makes; elsewhere they get contents.
            if self.plan.mix != Mix::Hp {
                self.spare.clear();
            }
            return Ok(());
        }
        let name = format!("n{node}").into_bytes();
        let (found, mode) = (Self::shown(node, 0), 0o644);
        let event = Event { node: above, name: &name, mode, found, ..Event::new(Call::Mknod) };
        self.emit(class, event)?;
        self.files.push(FileState { node, directory: parent, name, is_known: true });
        Ok(())
    }

    /// Removes the newest directory that is empty. Its place stays, and refers to its parent.
    fn rmdir(&mut self) -> Result<bool, E> {
        if self.spare.last().is_none_or(|place| place + 1 != self.directories.len()) {
            return Ok(false);
        }
        self.spare.pop();
        let Some(directory) = self.directories.pop() else { return Ok(false) };
        let node = self.directories[directory.parent].node;
        let event = Event { node, name: &directory.name, ..Event::new(Call::Rmdir) };
        self.emit(Class::Rmdir, event)?;
        Ok(true)
    }

    fn rename_directory(&mut self) -> Result<bool, E> {
        let place = self.random.usize(..self.directories.len());
        if place == 0 || self.spare.contains(&place) {
            return Ok(false);
        }
        self.know_directory(place)?;
        let new = format!("e{}", self.number()).into_bytes();
        let node = self.directories[self.directories[place].parent].node;
        let old = std::mem::replace(&mut self.directories[place].name, new.clone());
        let event =
            Event { node, name: &old, other: node, other_name: &new, ..Event::new(Call::Rename) };
        self.emit(Class::RenameDirectory, event)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn counts(plan: &Plan) -> BTreeMap<Call, u64> {
        let mut counts = BTreeMap::new();
        generate(plan, &mut |event: &Event<'_>| {
            *counts.entry(event.call).or_default() += 1;
            Ok::<(), TraceError>(())
        })
        .unwrap();
        counts
    }

    #[test]
    fn shares_are_those_of_the_papers() {
        let plan = Plan { mix: Mix::Hp, operations: 200_000, files: 2_000, seed: 1 };
        let found = counts(&plan);
        assert_eq!(found.values().sum::<u64>(), plan.operations);
        let share = |call: Call| found[&call] as f64 / plan.operations as f64;
        for (call, count) in [
            (Call::Lookup, 13_908_189.0),
            (Call::Getattr, 2_827_387.0),
            (Call::Open, 2_572_124.0),
            (Call::Unlink, 67_883.0),
            (Call::Mknod, 41_755.0),
            (Call::Rename, 7_688.0),
            (Call::Mkdir, 7_389.0),
            (Call::Rmdir, 6_973.0),
        ] {
            let there = count / 19_439_388.0;
            assert!((share(call) - there).abs() < 0.0005, "{call:?}: {} {there}", share(call));
        }
        let plan = Plan { mix: Mix::Linkedin, ..plan };
        let found = counts(&plan);
        let of = |calls: &[Call]| calls.iter().map(|call| found[call]).sum::<u64>();
        assert!(of(&[Call::Lookup, Call::Open]).abs_diff(168_000) < 100);
        assert!(of(&[Call::Mknod, Call::Mkdir]).abs_diff(18_000) < 100);
        assert!(of(&[Call::Setattr, Call::Unlink, Call::Rename]).abs_diff(14_000) < 100);
    }

    #[test]
    fn one_seed_makes_one_trace() {
        let plan = |seed| Plan { mix: Mix::Hp, operations: 3_000, files: 100, seed };
        let all = |seed| {
            let mut events = Vec::new();
            let mut keep = |event: &Event<'_>| {
                let mut fields = Vec::new();
                event.put_fields(&mut fields);
                events.push((event.at, fields));
                Ok::<(), TraceError>(())
            };
            generate(&plan(seed), &mut keep).unwrap();
            events
        };
        assert_eq!(all(5), all(5));
        assert_ne!(all(5), all(6));
    }
}
