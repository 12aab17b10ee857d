//! Structures of the B-tree: nodes, pointers, the map of free space, superblocks, the catalog.

use fastrand::Rng;
use format::catalog::{CatalogKey, RootRecord};
use format::map_directory::{self, Entry, PageCopy};
use format::node::{self, InteriorBody, Kind, LeafBody};
use format::superblock::{Decoded, Superblock};
use format::{Pointer, Reader, space_map};

use super::{again, put_sum};
use crate::random::{ascending, bytes, counted, id, number, pointer, signed};
use crate::target::{Category, Target, no_checksum, seen};

const ADDRESS: u64 = 7;

pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "node",
        part: Category::Decoders,
        covers: &["node::LAYOUT", "node::verify", "node::new", "node::next_entry"],
        make: make_leaf,
        repair: no_checksum,
        run: run_node,
    },
    Target {
        name: "interior-node",
        part: Category::Decoders,
        covers: &["node::new", "node::next_child"],
        make: make_interior,
        repair: no_checksum,
        run: run_node,
    },
    Target {
        name: "map-directory",
        part: Category::Decoders,
        covers: &["map_directory::LAYOUT", "map_directory::decode"],
        make: make_directory,
        repair: no_checksum,
        run: run_node,
    },
    Target {
        name: "map-page",
        part: Category::Decoders,
        covers: &["space_map::decode"],
        make: make_page,
        repair: no_checksum,
        run: run_page,
    },
    Target {
        name: "pointer",
        part: Category::Decoders,
        covers: &["pointer::LAYOUT", "pointer::decode"],
        make: |random| {
            let mut out = Vec::new();
            pointer(random).encode(&mut out);
            out
        },
        repair: no_checksum,
        run: |bytes| Pointer::decode(&mut Reader::new("pointer", bytes)).is_ok(),
    },
    Target {
        name: "superblock",
        part: Category::Decoders,
        covers: &["superblock::LAYOUT", "superblock::decode"],
        make: make_superblock,
        repair: |bytes| put_sum(bytes, 12, &[(0, 12), (16, 128)]),
        run: run_superblock,
    },
    Target {
        name: "catalog",
        part: Category::Decoders,
        covers: &["catalog::decode"],
        make: |random| {
            RootRecord { pointer: pointer(random), level: random.u8(..=node::LEVEL_MAX) }.encode()
        },
        repair: no_checksum,
        run: run_catalog,
    },
];

fn make_leaf(random: &mut Rng) -> Vec<u8> {
    let suffixes = ascending(random, 40, 24);
    let mut out = Vec::new();
    node::begin(&mut out, Kind::Leaf, 0, number(random), suffixes.len() as u32);
    node::put_prefix(&mut out, &bytes(random, 20));
    for suffix in &suffixes {
        if random.u8(..8) == 0 {
            let pointer = pointer(random);
            node::put_overflow(&mut out, suffix, random.u32(2049..1 << 20), &pointer);
        } else {
            node::put_inline(&mut out, suffix, &bytes(random, 100));
        }
    }
    node::seal(&mut out, ADDRESS);
    out
}

fn make_interior(random: &mut Rng) -> Vec<u8> {
    let suffixes = ascending(random, 40, 24);
    let mut out = Vec::new();
    let level = random.u8(1..=node::LEVEL_MAX);
    node::begin(&mut out, Kind::Interior, level, number(random), suffixes.len() as u32 + 1);
    node::put_prefix(&mut out, &bytes(random, 20));
    node::put_first_child(&mut out, &pointer(random));
    for suffix in &suffixes {
        node::put_child(&mut out, suffix, &pointer(random));
    }
    node::seal(&mut out, ADDRESS);
    out
}

fn make_directory(random: &mut Rng) -> Vec<u8> {
    let groups: Vec<Entry> = (0..random.usize(..60))
        .map(|_| Entry {
            checksum: random.u32(..),
            free: random.u16(..=space_map::GROUP_UNITS as u16),
            copy: match random.u8(..4) {
                0 => PageCopy::None,
                1 => PageCopy::A,
                2 => PageCopy::B,
                _ => PageCopy::Gathered(random.u32(..)),
            },
        })
        .collect();
    let mut out = Vec::new();
    map_directory::encode(&mut out, number(random), &groups);
    node::seal(&mut out, ADDRESS);
    out
}

/// The pointer to a node has its checksum: here each node has the right one.
fn sum_of_node(bytes: &[u8]) -> u32 {
    let body =
        bytes.get(28..32).and_then(|slot| slot.try_into().ok()).map_or(0, u32::from_le_bytes);
    let end = (body as usize).saturating_add(node::HEADER_BYTES);
    crc32c::crc32c(bytes.get(..end).unwrap_or_default())
}

fn run_node(bytes: &[u8]) -> bool {
    seen(node::verify(bytes, ADDRESS, 0));
    let Ok((header, body)) = node::verify(bytes, ADDRESS, sum_of_node(bytes)) else { return false };
    match header.kind {
        Kind::Leaf => {
            let Ok(mut leaf) = LeafBody::new(&header, body) else { return false };
            assert!(leaf.prefix().len() <= format::batch::KEY_BYTES_MAX, "a long prefix");
            loop {
                match leaf.next_entry() {
                    Ok(Some(_)) => {}
                    Ok(None) => return true,
                    Err(_) => return false,
                }
            }
        }
        Kind::Interior => {
            let Ok(mut interior) = InteriorBody::new(&header, body) else { return false };
            assert!(interior.first().units > 0, "a pointer to nothing");
            loop {
                match interior.next_child() {
                    Ok(Some(_)) => {}
                    Ok(None) => return true,
                    Err(_) => return false,
                }
            }
        }
        Kind::MapDirectory => map_directory::decode(&header, body).is_ok(),
        Kind::Overflow | Kind::MapPage => true,
    }
}

fn make_page(random: &mut Rng) -> Vec<u8> {
    let most = random.u32(1..9);
    let counts: Vec<u32> = (0..space_map::GROUP_UNITS).map(|_| random.u32(..most)).collect();
    let mut out = Vec::new();
    space_map::encode(&mut out, ADDRESS, number(random), &counts);
    out
}

fn run_page(bytes: &[u8]) -> bool {
    seen(space_map::decode(bytes, ADDRESS, 0));
    space_map::decode(bytes, ADDRESS, sum_of_node(bytes)).is_ok()
}

fn make_superblock(random: &mut Rng) -> Vec<u8> {
    let superblock = Superblock {
        volume: id(random),
        generation: counted(random),
        lsn: counted(random),
        groups: counted(random),
        next_trash: counted(random),
        time: signed(random),
        directory: pointer(random),
        catalog: pointer(random),
        catalog_level: random.u8(..=node::LEVEL_MAX),
    };
    superblock.encode()
}

fn run_superblock(bytes: &[u8]) -> bool {
    let Ok(decoded) = Superblock::decode(bytes) else { return false };
    if let Decoded::Superblock(superblock) = decoded {
        again(&decoded, &superblock.encode(), Superblock::decode);
    }
    true
}

fn run_catalog(bytes: &[u8]) -> bool {
    // The key of the same record: its first bytes.
    let key = bytes.get(..9).unwrap_or(bytes);
    for first in [b"T", b"X"] {
        let key = [first, key.get(1..).unwrap_or_default()].concat();
        if let Ok(decoded) = CatalogKey::decode(&key) {
            again(&decoded, &decoded.encode(), CatalogKey::decode);
        }
    }
    seen(CatalogKey::decode(key));
    let Ok(record) = RootRecord::decode(bytes) else { return false };
    again(&record, &record.encode(), RootRecord::decode);
    true
}
