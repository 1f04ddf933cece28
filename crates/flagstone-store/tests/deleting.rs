//! Deleting and trimming write little: what is trimmed is listed, about a thousand pages to a page.

use flagstone::units::Lpn;
use flagstone_store::medium::Recorded;
use flagstone_store::{OpenOptions, PageStore, Store, TableKind, Volume};

const MIB: u64 = 1 << 20;

/// What may be written for so many bytes that are deleted in so many commits: a thousandth, and a
/// page a commit.
fn bound(deleted: u64, commits: u64) -> u64 {
    deleted / 1000 + commits * 4096
}

#[test]
fn pages_that_are_trimmed_take_a_thousandth_of_their_bytes() {
    let medium = Recorded::default();
    let mut store = PageStore::on(Box::new(medium.clone()), &OpenOptions::default()).unwrap();
    let pages = 20_000u32;
    for first in (0..pages).step_by(1000) {
        let tx = store.begin().unwrap();
        for at in first..first + 1000 {
            store.write(tx, Lpn(at), &[7; 4000]).unwrap();
        }
        store.commit(tx).unwrap();
    }
    let (written, bytes) = (medium.written(), medium.to_vec().len());
    let tx = store.begin().unwrap();
    for at in 0..pages {
        store.trim(tx, Lpn(at)).unwrap();
    }
    store.commit(tx).unwrap();
    let deleted = u64::from(pages) * 4096;
    let wrote = medium.written() - written;
    assert!(wrote <= bound(deleted, 1), "{wrote} bytes for {deleted}");
    assert_eq!(medium.to_vec().len(), bytes, "the file has grown");
    let mut page = vec![0; PageStore::PAGE_BYTES];
    assert_eq!(store.read(None, Lpn(77), &mut page).unwrap(), None);
    drop(store);
    let mut store = PageStore::on(Box::new(medium), &OpenOptions::default()).unwrap();
    for at in (0..pages).step_by(101) {
        assert_eq!(store.read(None, Lpn(at), &mut page).unwrap(), None);
    }
    assert!(store.check().unwrap().is_well());
}

#[test]
fn a_value_that_is_deleted_takes_a_thousandth_of_its_bytes() {
    let medium = Recorded::default();
    let store = Store::on(Box::new(medium.clone()), &OpenOptions::default()).unwrap();
    let mut write = store.write().unwrap();
    let mut table = write.open_table("t", TableKind::Ordered).unwrap();
    let value = vec![9; 48 * MIB as usize];
    table.insert(b"big", &value).unwrap();
    write.commit().unwrap();
    let (written, bytes) = (medium.written(), medium.to_vec().len());
    assert!(store.remove("t", b"big").unwrap());
    let wrote = medium.written() - written;
    assert!(wrote <= bound(48 * MIB, 1), "{wrote} bytes");
    assert_eq!(medium.to_vec().len(), bytes, "the file has grown");
    store.close().unwrap();
}

#[test]
fn a_disk_that_is_trimmed_takes_a_thousandth_of_its_bytes() {
    let medium = Recorded::default();
    let store = PageStore::on(Box::new(medium.clone()), &OpenOptions::default()).unwrap();
    let mut disk = Volume::create(store, 64 * MIB).unwrap();
    let data = vec![3; MIB as usize];
    for at in 0..64 {
        disk.write(at * MIB, &data).unwrap();
        if at % 8 == 7 {
            disk.flush().unwrap();
        }
    }
    let (written, bytes) = (medium.written(), medium.to_vec().len());
    for at in 0..8 {
        disk.trim(at * 8 * MIB, 8 * MIB).unwrap();
    }
    disk.flush().unwrap();
    let wrote = medium.written() - written;
    assert!(wrote <= bound(64 * MIB, 1), "{wrote} bytes");
    assert_eq!(medium.to_vec().len(), bytes, "the file has grown");
    disk.close().unwrap();
}
