//! Sorted maps and sets against those of the standard library.

use std::collections::{BTreeMap, BTreeSet};

use models::sorted::{SortedMap, SortedSet};

/// Numbers in no order, the same in each run.
fn numbers() -> impl Iterator<Item = u32> {
    let mut last = 1_u32;
    std::iter::repeat_with(move || {
        last = last.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        last >> 16
    })
}

#[test]
fn a_map_is_as_one_of_the_standard_library() {
    let (mut map, mut model) = (SortedMap::default(), BTreeMap::new());
    for number in numbers().take(5_000) {
        let (key, value) = (number % 7, number);
        match number % 3 {
            0 => assert_eq!(map.remove(&key), model.remove(&key)),
            1 if number % 40 == 1 => {
                map.retain(|key, _| key % 2 == 0);
                model.retain(|key, _| key % 2 == 0);
            }
            _ => {
                let there = *model.entry(key).or_insert(value);
                assert_eq!(*map.get_or_insert_with(key, || value), there);
            }
        }
        assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
        assert_eq!(map.last().map(|(key, value)| (key, value)), model.last_key_value());
        for key in 0..7 {
            assert_eq!(map.get(&key), model.get(&key));
            assert_eq!(map.contains_key(&key), model.contains_key(&key));
        }
    }
}

#[test]
fn a_set_is_as_one_of_the_standard_library_whatever_the_order_of_its_values() {
    let (mut set, mut model) = (SortedSet::default(), BTreeSet::new());
    for number in numbers().take(5_000) {
        let value = number % 9;
        if number % 2 == 0 {
            set.remove(&value);
            model.remove(&value);
        } else {
            assert_eq!(set.insert(value), model.insert(value));
        }
        assert!(set.iter().eq(&model), "{set:?} {model:?}");
        assert_eq!((set.first(), set.is_empty()), (model.first(), model.is_empty()));
        assert!((0..9).all(|value| set.contains(&value) == model.contains(&value)));
        // Equal contents are equal values.
        let mut other = SortedSet::default();
        for value in model.iter().rev() {
            other.insert(*value);
        }
        assert_eq!(set, other);
    }
}
