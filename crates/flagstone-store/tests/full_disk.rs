//! A store on a file system that is really full: a small tmpfs. To mount one takes the rights of
//! root, and where they are missing the test says so and looks at nothing.

use flagstone::units::Lpn;
use flagstone_store::{OpenOptions, PageStore, StoreError};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted file system of 24 MiB, which is unmounted when it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: &Path) -> Option<Mounted> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"]);
        let mounted = mount.arg(at).output().is_ok_and(|out| out.status.success());
        mounted.then(|| Mounted(at.to_path_buf()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Commits one page a transaction from `first` on, until there is no room; says how far it came.
fn fill(store: &mut PageStore, first: u32) -> (u32, StoreError) {
    let mut at = first;
    loop {
        let tx = store.begin().expect("it begins");
        let page = vec![(at % 251) as u8; PageStore::PAGE_BYTES];
        let outcome = store.write(tx, Lpn(at), &page);
        if let Err(error) = outcome.and_then(|()| store.commit(tx)) {
            store.abort(tx).expect("it can be rolled back");
            return (at, error);
        }
        at += 1;
    }
}

#[test]
fn a_full_disk_is_a_clear_error_and_the_store_goes_on_when_there_is_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(mounted) = Mounted::new(folder.path()) else {
        eprintln!("skipped: only root can mount a file system");
        return;
    };
    let path = mounted.0.join("store.flag");
    let ballast = mounted.0.join("ballast");
    std::fs::write(&ballast, vec![1; 8 << 20]).expect("room");
    let mut store = PageStore::open(&path, &OpenOptions::default()).expect("a store");
    let (first, error) = fill(&mut store, 0);
    assert!(matches!(error, StoreError::Full(_)), "{error}");
    assert!(error.to_string().contains("No space left"), "{error}");
    let (again, _) = fill(&mut store, first);
    assert_eq!(again, first, "there is no room, and it is found");
    // What is there can be read, also by another opening.
    let whole = |store: &mut PageStore, pages: u32| {
        assert!(store.check().expect("it can be read").is_well());
        let mut page = vec![0; PageStore::PAGE_BYTES];
        for at in 0..pages {
            let bytes = store.read(None, Lpn(at), &mut page).expect("a page");
            assert_eq!(
                (bytes, page[9]),
                (Some(PageStore::PAGE_BYTES), (at % 251) as u8)
            );
        }
    };
    whole(&mut store, first);
    store.close().expect("to close takes no room");
    let mut store = PageStore::open(&path, &OpenOptions::existing()).expect("the store");
    assert_eq!(store.info().closed, Some(true));
    whole(&mut store, first);
    std::fs::remove_file(ballast).expect("it can be removed");
    let (further, _) = fill(&mut store, first);
    assert!(further > first + 500, "{first}, {further}");
    whole(&mut store, further);
    drop(store);
    // A new store finds no room at all.
    let refused = PageStore::open(&mounted.0.join("other.flag"), &OpenOptions::default());
    let error = refused.err().expect("there is no room").to_string();
    assert!(
        error.contains("reserving room") && error.contains("No space left"),
        "{error}"
    );
}
