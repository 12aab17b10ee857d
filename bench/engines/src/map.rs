//! The limit of what memory can do: the ordered map of the standard library. Nothing is durable.

use std::collections::BTreeMap;

use crate::engine::{Engine, Result};

#[derive(Default)]
pub(crate) struct Map {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
    copy: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Engine for Map {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.map.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.map.remove(key);
        Ok(())
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.map.get(key);
        if let Some(value) = value {
            found(value);
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, prefix: &[u8], found: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut count = 0;
        for (key, value) in self.map.range(prefix.to_vec()..) {
            if !key.starts_with(prefix) {
                break;
            }
            found(key, value);
            count += 1;
        }
        Ok(count)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    fn snapshot(&mut self) -> Result<()> {
        self.copy = BTreeMap::new();
        self.copy = self.map.clone();
        Ok(())
    }

    fn copy(&mut self, _number: u64) -> Result<bool> {
        Ok(false)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
