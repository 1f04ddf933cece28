//! Permissions of drafts, and two concurrent drafts for one name.

use super::*;
use crate::medium::identity;
use crate::pages::tests::assert_says;
use crate::tools::{Hints, Progress, Source, backup, compact, compare, fill, repair};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A store with one page.
fn store(path: &Path, data: &[u8]) {
    let mut store = PageStore::open(path, &OpenOptions::default()).expect("a store");
    store.put(3, data);
    store.close().expect("a close");
}

fn page(path: &Path) -> Vec<u8> {
    let reading = OpenOptions::existing().reading();
    let mut store = PageStore::open(path, &reading).expect("a store");
    store.page(3).expect("it reads")
}

fn mode(path: &Path) -> Option<u32> {
    let meta = std::fs::metadata(path).ok()?;
    Some(meta.permissions().mode() & 0o777)
}

/// The permissions of a file at each progress report of an operation.
fn modes_during(path: &Path, act: impl FnOnce(Progress<'_>)) -> Vec<u32> {
    let mut modes = Vec::new();
    act(&mut |_, _| modes.extend(mode(path)));
    assert!(!modes.is_empty(), "{} is there", path.display());
    modes.dedup();
    modes
}

/// Such drafts once had the default permissions of new files, usually readable by everybody.
#[test]
fn nobody_but_the_owner_can_read_a_draft() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let (path, copy, draft) = (at("a.flag"), at("b.flag"), at(".b.flag.draft"));
    store(&path, b"secret");
    let opening = OpenOptions::default();
    for rights in [0o600, 0o640, 0o644] {
        std::fs::set_permissions(&path, Permissions::from_mode(rights)).expect("its owner");
        let during = modes_during(&draft, |hear| {
            _ = backup(&path, &copy, &opening, true, hear).expect("a copy");
        });
        assert_eq!((during, mode(&copy)), (vec![0o600], Some(rights)));
        for newest in [false, true] {
            let hints = Hints {
                newest,
                ..Hints::default()
            };
            let during = modes_during(&draft, |hear| {
                _ = repair(&path, &copy, &opening, &hints, true, hear).expect("a store");
            });
            assert_eq!((during, mode(&copy)), (vec![0o600], Some(rights)));
        }
        let during = modes_during(&at(".a.flag.draft"), |hear| {
            _ = compact(&path, &opening, hear).expect("room");
        });
        assert_eq!((during, mode(&path)), (vec![0o600], Some(rights)));
        assert_eq!(page(&path), b"secret");
    }
    // A draft left by a killed process is not reused, since others may be able to read it.
    std::fs::write(&draft, [1; 5000]).expect("room");
    std::fs::set_permissions(&draft, Permissions::from_mode(0o666)).expect("its owner");
    let during = modes_during(&draft, |hear| {
        _ = backup(&path, &copy, &opening, true, hear).expect("a copy");
    });
    assert_eq!(during, [0o600]);
}

/// The second draft once removed the first one, which was then renamed with the contents of the
/// second.
#[test]
fn a_second_draft_for_the_same_name_leaves_the_first_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let (one, two, copy) = (at("one.flag"), at("two.flag"), at("copy.flag"));
    store(&one, b"one");
    store(&two, b"two");
    let opening = OpenOptions::default();
    let quiet = &mut |_: u64| ();
    let reading = OpenOptions::existing().reading();
    let mut from = PageStore::open(&one, &reading).expect("a store");
    let mut source = Source::of(&mut from);
    let draft = Draft::new(&copy, Some(&one), false, &opening).expect("a draft");
    let second = || backup(&two, &copy, &opening, false, &mut |_, _| ());
    let is_refused = || assert!(matches!(second(), Err(StoreError::InUse { .. })));
    is_refused();
    fill(&mut source, &draft, None, quiet).expect("room");
    is_refused();
    compare(&mut source, &draft, quiet).expect("it is the same");
    is_refused();
    draft.finish(None).expect("its name");
    assert_eq!(page(&copy), b"one");
    // Control: the name is free again, for a caller that may replace the file.
    backup(&two, &copy, &opening, true, &mut |_, _| ()).expect("a copy");
    assert_eq!(page(&copy), b"two");
}

#[test]
fn a_file_that_was_put_in_the_place_of_a_draft_gets_no_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let (copy, hidden) = (
        folder.path().join("copy.flag"),
        folder.path().join(".copy.flag.draft"),
    );
    let opening = OpenOptions::default();
    let draft = Draft::new(&copy, None, false, &opening).expect("a draft");
    let made = draft.open(&opening).expect("a store");
    made.close().expect("a close");
    std::fs::remove_file(&hidden).expect("it is there");
    std::fs::write(&hidden, "of somebody else").expect("room");
    assert_says(draft.open(&opening), "another file");
    assert_says(draft.finish(None), "another file");
    assert!(!copy.exists());
    let left = std::fs::read(&hidden).expect("nobody has removed it");
    assert_eq!(left, b"of somebody else");
}

/// Such a store was once opened, and once made, between the check and the rename: its commits were
/// lost. `vanishes`: each holder removes the store, so that the next one makes it.
fn is_not_replaced_while_somebody_has_it(vanishes: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let (from, to) = (folder.path().join("a.flag"), folder.path().join("b.flag"));
    store(&from, b"from");
    let (is_over, opening) = (AtomicBool::new(false), OpenOptions::default());
    std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let (mut held, moment) = (0, Duration::from_micros(10));
            while !is_over.load(Ordering::Relaxed) {
                if let Ok(_locked) = Disk::open(&to, true, false) {
                    let file = identity(&to);
                    std::thread::sleep(moment);
                    assert_eq!(identity(&to), file, "it was exchanged after {held}");
                    held += 1;
                    if vanishes {
                        std::fs::remove_file(&to).expect("it is there");
                    }
                }
                std::thread::sleep(moment);
            }
            held
        });
        let mut replaced = 0;
        while replaced < 500 && !holder.is_finished() {
            let draft = Draft::new(&to, Some(&from), true, &opening);
            replaced += u32::from(draft.and_then(|draft| draft.finish(None)).is_ok());
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(holder.join().expect("nothing was exchanged") > 0);
    });
}

#[test]
fn a_store_is_not_replaced_while_somebody_has_it() {
    is_not_replaced_while_somebody_has_it(false);
}

#[test]
fn a_store_that_was_made_meanwhile_is_not_replaced() {
    is_not_replaced_while_somebody_has_it(true);
}
