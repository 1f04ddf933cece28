//! Unreadable superblocks: one of two suffices, as without encryption.

use super::*;

#[test]
fn a_superblock_that_cannot_be_read_is_one_that_is_damaged() {
    let medium = Recorded::default();
    let mut store = open(&medium, raw(1)).expect("it is made");
    store.put(3, b"secret");
    store.close().expect("a close");
    let open_without = |bad: &[u64], key| {
        medium.refuse(bad);
        PageStore::on(Box::new(medium.clone()), &options(raw(key)).reading())
    };
    for bad in [0, 1] {
        let mut store = open_without(&[bad], 1).expect("by the other superblock");
        assert_eq!(store.page(3).as_deref(), Some(&b"secret"[..]));
        assert!(refusal(open_without(&[bad], 2)).contains("not the key"));
    }
    let none = open_without(&[0, 1], 1);
    assert!(matches!(none, Err(StoreError::Io { .. })));
}
