//! Where the parts of the B-tree are: from the superblock down, by what points to each.

use std::collections::BTreeMap;

use format::Pointer;
use format::catalog::{CatalogKey, RootRecord};
use format::kept_twice::COPY_TREE;
use format::key;
use format::map_directory::{self, PageCopy};
use format::node::{self, HEADER_BYTES, Header, InteriorBody, LeafBody, LeafValue, UNIT_BYTES};
use format::space_map::{GROUP_BYTES, GROUP_UNITS, PAGE_BYTES};
use format::superblock::{Decoded, SUPERBLOCK_BYTES, Superblock};
use store::TreeId;

use super::anatomy::{DamageSite, Top};
use super::media::Media;
use super::permitted::OF_NONE;

const NODES: &str = "btree/nodes";
const SUPERBLOCKS: [&str; 2] = ["btree/super-0", "btree/super-1"];

/// What of a tree all else hangs on.
#[derive(Clone, Copy)]
enum Hub<'k> {
    /// Each node.
    All,
    /// Those above a key.
    Above(&'k [u8]),
    None,
}

impl Hub<'_> {
    fn is(self, low: &[u8], high: Option<&[u8]>) -> bool {
        match self {
            Hub::All => true,
            Hub::Above(key) => low <= key && high.is_none_or(|high| key < high),
            Hub::None => false,
        }
    }
}

/// Adds the places; returns the last record of the log that the state contains.
pub(super) fn places(media: &Media, top: &Top, found: &mut Vec<DamageSite>) -> u64 {
    let mut newest: Option<Superblock> = None;
    for path in SUPERBLOCKS {
        found.push(DamageSite::new("superblock", path, 0, SUPERBLOCK_BYTES as u64));
        let Ok(Decoded::Superblock(superblock)) = Superblock::decode(&media.read(path)) else {
            panic!("{path} is whole");
        };
        if newest.is_none_or(|newest| newest.generation < superblock.generation) {
            newest = Some(superblock);
        }
    }
    let superblock = newest.expect("there are two");
    let mut walk = Walk { bytes: media.read(NODES), found: BTreeMap::new() };
    walk.counts(superblock.directory);
    let mut roots = Vec::new();
    let names = ["node of the catalog"; 2];
    let catalog = Root { hub: Hub::All, names, level: superblock.catalog_level };
    walk.tree(superblock.catalog, &catalog, (&[], None), &mut |key, value| {
        let record = RootRecord::decode(value).expect("it is whole");
        roots.push((CatalogKey::decode(key).expect("it is whole"), record));
    });
    for (key, RootRecord { pointer, level }) in roots {
        let (hub, names) = match key {
            CatalogKey::Tree(key::VOLUME_TREE) => (Hub::All, ["node of the volume's own tree"; 2]),
            CatalogKey::Tree(COPY_TREE) => (Hub::None, ["node of the copies of its records"; 2]),
            CatalogKey::Tree(tree) if tree == top.tree => {
                (Hub::Above(&top.key), ["leaf", "interior node"])
            }
            CatalogKey::Tree(tree) if top.trees.contains(&TreeId(tree)) => {
                (Hub::None, ["leaf", "interior node"])
            }
            _ => (Hub::None, [OF_NONE; 2]),
        };
        walk.tree(pointer, &Root { hub, names, level }, (&[], None), &mut |_, _| {});
    }
    found.extend(
        walk.found
            .into_iter()
            .map(|(offset, (structure, length))| DamageSite::new(structure, NODES, offset, length)),
    );
    superblock.lsn
}

/// A node at the top of something.
struct Root<'k> {
    hub: Hub<'k>,
    /// Names of its leaves and of its interior nodes.
    names: [&'static str; 2],
    level: u8,
}

struct Walk {
    bytes: Vec<u8>,
    /// Structure and length by offset.
    found: BTreeMap<u64, (&'static str, u64)>,
}

fn offset(unit: u64) -> u64 {
    let (group, within) = (unit / GROUP_UNITS as u64, unit % GROUP_UNITS as u64);
    group * GROUP_BYTES as u64 + 2 * PAGE_BYTES as u64 + within * UNIT_BYTES as u64
}

impl Walk {
    fn read(&self, pointer: Pointer) -> (Header, Vec<u8>) {
        let bytes = &self.bytes[offset(pointer.unit) as usize..];
        let bytes = &bytes[..bytes.len().min(usize::from(pointer.units) * UNIT_BYTES)];
        let (header, body) =
            node::verify(bytes, pointer.unit, pointer.checksum).expect("it is whole");
        (header, body.to_vec())
    }

    /// Notes a node. A hub stays one, even if others share it.
    fn note(&mut self, pointer: Pointer, header: &Header, structure: &'static str, hub: bool) {
        let length = (HEADER_BYTES as u64) + u64::from(header.body);
        let found = self.found.entry(offset(pointer.unit)).or_insert((structure, length));
        if found.0 == OF_NONE {
            found.0 = structure;
        }
        if hub {
            found.0 = match structure {
                "leaf" | "interior node" => "node above the top directory",
                other => other,
            };
        }
    }

    fn counts(&mut self, pointer: Pointer) {
        let (header, body) = self.read(pointer);
        self.note(pointer, &header, "directory of counts", false);
        let groups = map_directory::decode(&header, &body).expect("it is whole");
        for (group, entry) in (0_u64..).zip(groups) {
            let at = match entry.copy {
                PageCopy::None => continue,
                PageCopy::A => group * GROUP_BYTES as u64,
                PageCopy::B => group * GROUP_BYTES as u64 + PAGE_BYTES as u64,
                PageCopy::Gathered(unit) => offset(u64::from(unit)),
            };
            self.found.insert(at, ("page of counts", PAGE_BYTES as u64));
        }
    }

    fn tree(
        &mut self,
        pointer: Pointer,
        root: &Root<'_>,
        (low, high): (&[u8], Option<&[u8]>),
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) {
        let (header, body) = self.read(pointer);
        let [leaf, interior] = root.names;
        let name = if root.level == 0 { leaf } else { interior };
        self.note(pointer, &header, name, root.hub.is(low, high));
        if root.level == 0 {
            let mut entries = LeafBody::new(&header, &body).expect("it is whole");
            while let Some((suffix, value)) = entries.next_entry().expect("it is whole") {
                match value {
                    LeafValue::Inline(value) => visit(&[entries.prefix(), suffix].concat(), value),
                    LeafValue::Overflow { pointer, .. } => {
                        let (header, _) = self.read(pointer);
                        self.note(pointer, &header, "long value", false);
                    }
                }
            }
            return;
        }
        let mut children = InteriorBody::new(&header, &body).expect("it is whole");
        let mut all = vec![(low.to_vec(), children.first())];
        while let Some((suffix, child)) = children.next_child().expect("it is whole") {
            all.push(([children.prefix(), suffix].concat(), child));
        }
        for (at, (low, child)) in all.iter().enumerate() {
            let high = all.get(at + 1).map(|(next, _)| next.as_slice()).or(high);
            let below = Root { level: root.level - 1, ..*root };
            self.tree(*child, &below, (low, high), visit);
        }
    }
}
