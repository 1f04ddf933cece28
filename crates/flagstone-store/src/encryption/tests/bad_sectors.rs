//! Superblocks that the medium refuses to read: of two one is enough, as without encryption.

use super::*;
use std::io;

/// A medium that refuses to read one of its pages, or two.
struct Scratched(Recorded, Vec<u64>);

impl Medium for Scratched {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let pages = offset..offset + into.len() as u64;
        match self.1.iter().any(|bad| pages.contains(&(bad * 4096))) {
            // As Linux says it.
            true => Err(io::Error::from_raw_os_error(5)),
            false => self.0.read_at(offset, into),
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn bytes(&self) -> io::Result<u64> {
        self.0.bytes()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.0.reserve(bytes)
    }
}

#[test]
fn a_superblock_that_cannot_be_read_is_one_that_is_damaged() {
    let medium = Recorded::default();
    let mut store = open(&medium, raw(1)).expect("it is made");
    commit(&mut store, 3, b"secret");
    store.close().expect("a close");
    let open_without = |bad: &[u64], key| {
        let scratched = Scratched(medium.clone(), bad.to_vec());
        PageStore::on(Box::new(scratched), &options(raw(key)).reading())
    };
    for bad in [0, 1] {
        let mut store = open_without(&[bad], 1).expect("by the other superblock");
        assert_eq!(page(&mut store, 3).as_deref(), Some(&b"secret"[..]));
        assert!(refusal(open_without(&[bad], 2)).contains("not the key"));
    }
    let none = open_without(&[0, 1], 1);
    assert!(matches!(none, Err(StoreError::Io { .. })));
}
