//! A medium in memory: for tests, and for stores that need not outlive their process.

use super::Medium;
use std::io;

/// Bytes in memory.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    bytes: Vec<u8>,
}

impl Memory {
    /// A medium with these contents.
    pub fn with(bytes: Vec<u8>) -> Memory {
        Memory { bytes }
    }

    /// The contents.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl Medium for Memory {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let start = self.bytes.len().min(offset as usize);
        let len = into.len().min(self.bytes.len() - start);
        into[..len].copy_from_slice(&self.bytes[start..start + len]);
        into[len..].fill(0);
        Ok(())
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[start..end].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        if self.bytes.len() < bytes as usize {
            self.bytes.resize(bytes as usize, 0);
        }
        Ok(())
    }
}
