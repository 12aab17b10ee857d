//! redb. It has no log: what is to be durable is written in its place by a commit that syncs.
//!
//! A commit for every operation costs it more than the operation, so it is also measured with
//! transactions of 1,000 operations. Those promise less than the others do: a crash, and a reader
//! beside the writer, see whole thousands. Commits do not sync, but every five seconds one does.

use std::path::Path;
use std::time::Instant;

use redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition, WriteTransaction,
};

use crate::engine::{Engine, FLUSH_INTERVAL, Result};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("t");

/// Look-ups between two openings of a read transaction.
const READS_A_TRANSACTION: u64 = 1000;

pub(crate) struct Redb {
    /// In this order, for the transactions must be gone first.
    writing: Option<Writing>,
    reading: Option<(u64, ReadOnlyTable<&'static [u8], &'static [u8]>)>,
    database: Database,
    a_transaction: u64,
    synced: Instant,
}

struct Writing {
    transaction: WriteTransaction,
    operations: u64,
}

impl Redb {
    pub(crate) fn create(path: &Path, cache_bytes: usize, a_transaction: u64) -> Result<Redb> {
        let path = path.join("redb");
        let database = Database::builder().set_cache_size(cache_bytes).create(&path)?;
        let redb =
            Redb { writing: None, reading: None, database, a_transaction, synced: Instant::now() };
        let transaction = redb.database.begin_write()?;
        transaction.open_table(TABLE)?;
        transaction.commit()?;
        Ok(redb)
    }

    fn write(&mut self) -> Result<&mut Writing> {
        self.reading = None;
        if self.writing.is_none() {
            let mut transaction = self.database.begin_write()?;
            transaction.set_durability(Durability::None)?;
            self.writing = Some(Writing { transaction, operations: 0 });
        }
        self.writing.as_mut().ok_or_else(|| "a transaction is open".into())
    }

    fn wrote(&mut self) -> Result<()> {
        let Some(writing) = &mut self.writing else { return Ok(()) };
        writing.operations += 1;
        if writing.operations < self.a_transaction {
            return Ok(());
        }
        if self.synced.elapsed() > FLUSH_INTERVAL {
            return self.sync();
        }
        self.commit()
    }

    fn commit(&mut self) -> Result<()> {
        if let Some(writing) = self.writing.take() {
            writing.transaction.commit()?;
        }
        Ok(())
    }

    fn table(&mut self) -> Result<&ReadOnlyTable<&'static [u8], &'static [u8]>> {
        self.commit()?;
        let spent = self.reading.as_ref().is_none_or(|(reads, _)| *reads >= READS_A_TRANSACTION);
        if spent {
            self.reading = Some((0, self.database.begin_read()?.open_table(TABLE)?));
        }
        let (reads, table) = self.reading.as_mut().ok_or("a transaction is open")?;
        *reads += 1;
        Ok(table)
    }
}

impl Engine for Redb {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write()?.transaction.open_table(TABLE)?.insert(key, value)?;
        self.wrote()
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.write()?.transaction.open_table(TABLE)?.remove(key)?;
        self.wrote()
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.table()?.get(key)?;
        if let Some(value) = &value {
            found(value.value());
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, prefix: &[u8], found: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut count = 0;
        for entry in self.table()?.range(prefix..)? {
            let (key, value) = entry?;
            if !key.value().starts_with(prefix) {
                break;
            }
            found(key.value(), value.value());
            count += 1;
        }
        Ok(count)
    }

    fn sync(&mut self) -> Result<()> {
        self.commit()?;
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        transaction.commit()?;
        self.synced = Instant::now();
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        self.sync()
    }

    fn snapshot(&mut self) -> Result<()> {
        self.commit()?;
        drop(self.database.begin_read()?);
        Ok(())
    }

    fn copy(&mut self, _number: u64) -> Result<bool> {
        // A persistent savepoint: what it holds can be returned to, but neither read nor written
        // beside the present state.
        self.commit()?;
        self.reading = None;
        let transaction = self.database.begin_write()?;
        transaction.persistent_savepoint()?;
        transaction.commit()?;
        Ok(true)
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.sync()?;
        self.reading = None;
        Ok(())
    }
}
