//! A medium in memory: for tests, and for stores that need not outlive their process.

use super::Medium;
use std::io;
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Bytes in memory.
///
/// ```
/// use flagstone_store::medium::Memory;
/// use flagstone_store::{OpenOptions, Store, StoreError};
///
/// let store = Store::on(Box::new(Memory::default()), &OpenOptions::default())?;
/// store.insert("users", b"ada", b"London")?;
/// assert!(store.read()?.table("users")?.contains(b"ada")?);
/// # Ok::<(), StoreError>(())
/// ```
#[derive(Debug, Default)]
pub struct Memory {
    bytes: RwLock<Vec<u8>>,
}

impl Memory {
    /// A medium with these contents.
    pub fn with(bytes: Vec<u8>) -> Memory {
        Memory {
            bytes: RwLock::new(bytes),
        }
    }

    /// The contents.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes.into_inner().expect("no thread panics here")
    }

    fn reading(&self) -> RwLockReadGuard<'_, Vec<u8>> {
        self.bytes.read().expect("no thread panics here")
    }

    fn writing(&self) -> RwLockWriteGuard<'_, Vec<u8>> {
        self.bytes.write().expect("no thread panics here")
    }
}

impl Medium for Memory {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let has = self.reading();
        let start = has.len().min(offset as usize);
        let len = into.len().min(has.len() - start);
        into[..len].copy_from_slice(&has[start..start + len]);
        into[len..].fill(0);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        let mut has = self.writing();
        if has.len() < end {
            has.resize(end, 0);
        }
        has[start..end].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<bool> {
        self.writing()[offset as usize..][..bytes as usize].fill(0);
        Ok(true)
    }

    fn can_shorten(&self) -> bool {
        true
    }

    fn shorten(&self, bytes: u64) -> io::Result<()> {
        self.writing().truncate(bytes as usize);
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.reading().len() as u64)
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let mut has = self.writing();
        if has.len() < bytes as usize {
            has.resize(bytes as usize, 0);
        }
        Ok(())
    }
}
