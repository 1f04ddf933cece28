//! Where stores are created, and what a power cut leaves of an unfinished one.

use super::*;
use crate::Store;
use crate::medium::Medium;
use crate::volume::Volume;

/// Contents that begin with zeros and are not a store, with their names.
fn others() -> Vec<(&'static str, Vec<u8>)> {
    let at = |offset: usize, what: &[u8], len: usize| {
        let mut bytes = vec![0; len];
        bytes[offset..offset + what.len()].copy_from_slice(what);
        bytes
    };
    vec![
        ("one byte", vec![0]),
        ("a superblock of zeros", vec![0; 4096]),
        ("two of them", vec![0; 8192]),
        ("a preallocated file", vec![0; 1 << 20]),
        ("an ISO 9660 image", at(0x8000, b"\x01CD001\x01", 400_000)),
        ("a member of btrfs", at(0x1_0040, b"_BHRfS_M", 400_000)),
        ("zeros and text", at(8192, b"what somebody needs", 10_000)),
        ("text", b"what somebody needs".repeat(1_000)),
    ]
}

/// Opens a medium with these contents in all ways that create a store. Returns error and contents.
fn refused(bytes: &[u8], options: &OpenOptions) -> Vec<(Option<StoreError>, Vec<u8>)> {
    type Open = fn(Recorded, &OpenOptions) -> Option<StoreError>;
    let ways: [Open; 4] = [
        |medium, options| PageStore::on(Box::new(medium), options).err(),
        |medium, options| Store::on(Box::new(medium), options).err(),
        |medium, options| {
            let pages = PageStore::on(Box::new(medium), options);
            pages.and_then(|pages| Volume::create(pages, 4096)).err()
        },
        |medium, options| PageStore::on(Box::new(medium), &options.clone().reading()).err(),
    ];
    let open = |way: Open| {
        let medium = Recorded::with(bytes);
        let error = way(medium.clone(), options);
        assert_eq!(medium.operations(), medium.syncs(), "something was written");
        (error, medium.to_vec())
    };
    ways.map(open).into()
}

#[test]
fn a_store_is_made_in_an_empty_file_only() {
    let options = small(Kind::Seal);
    for (what, bytes) in others() {
        for (error, left) in refused(&bytes, &options) {
            let said = error.as_ref().map(StoreError::to_string);
            assert!(
                matches!(error, Some(StoreError::NotAStore(_))),
                "{what}: {said:?}"
            );
            assert!(left == bytes, "{what} was changed");
        }
        // With `force` the contents are replaced by a store.
        let medium = Recorded::with(&bytes);
        let mut store = PageStore::on(Box::new(medium.clone()), &options.clone().forced())
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        store.put(7, b"mine");
        drop(store);
        // An existing store is never replaced.
        let mut store = PageStore::on(Box::new(medium), &options.clone().forced()).expect(what);
        assert_eq!(store.page(7), Some(b"mine".to_vec()), "{what}");
        assert!(store.check().expect("it can be read").is_well(), "{what}");
    }
    // Neither `existing` nor `reading` creates a store, whatever other options say.
    for options in [options.clone().forced().reading(), OpenOptions::existing()] {
        let medium = Recorded::default();
        let none = PageStore::on(Box::new(medium.clone()), &options).err();
        assert!(matches!(none, Some(StoreError::NotAStore(_))), "{none:?}");
        assert_eq!(medium.bytes().expect("it says so"), 0);
    }
}

#[test]
#[cfg(feature = "encryption")]
fn an_encrypted_store_takes_the_place_of_nothing_unasked() {
    let mut options = small(Kind::Seal);
    let plain = Recorded::default();
    PageStore::on(Box::new(plain.clone()), &options).expect("a store");
    options.key = Some(crate::Key::raw([7; 32]));
    for (what, bytes) in others() {
        for (error, left) in refused(&bytes, &options) {
            assert!(error.is_some() && left == bytes, "{what} was changed");
        }
        let medium = Recorded::with(&bytes);
        let forced = options.clone().forced();
        let mut store = PageStore::on(Box::new(medium.clone()), &forced).expect(what);
        store.put(7, b"mine");
        drop(store);
        let mut store = PageStore::on(Box::new(medium), &options).expect(what);
        assert_eq!(store.page(7), Some(b"mine".to_vec()), "{what}");
        assert!(store.check().expect("it can be read").is_well(), "{what}");
    }
    let was = plain.to_vec();
    let refused = PageStore::on(Box::new(plain.clone()), &options.forced()).err();
    assert!(matches!(refused, Some(StoreError::Key(_))), "{refused:?}");
    assert!(plain.to_vec() == was);
}

/// What cuts leave of a store during creation: the medium at each of its operations, with several
/// outcomes for unsynced writes.
fn cut_short(options: &OpenOptions, lies: bool) -> Vec<Recorded> {
    let medium = Recorded::default();
    if lies {
        medium.lie();
    }
    let moments = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&moments);
    let watcher = move |medium: &Recorded| {
        seen.lock().expect("one thread").push(medium.snapshot());
    };
    medium.watch(Some(Box::new(watcher)));
    drop(PageStore::on(Box::new(medium.clone()), options).expect("a store"));
    medium.watch(None);
    let mut moments = std::mem::take(&mut *moments.lock().expect("one thread"));
    moments.push(medium.snapshot());
    let cuts = |moment: &Recorded| {
        let pending = moment.pending();
        let some = (0..=pending).step_by(1 + pending as usize / 20);
        let parts = some.flat_map(|count| [Landing::First(count), Landing::Last(count)]);
        let drawn = (0..8).flat_map(|seed| [Landing::Sectors(seed), Landing::Pages(seed)]);
        let landings = [Landing::Nothing, Landing::Everything].into_iter();
        let landings = landings.chain(parts).chain(drawn);
        landings
            .map(|landing| moment.cut(landing))
            .collect::<Vec<_>>()
    };
    moments.iter().flat_map(cuts).collect()
}

/// Whether what a cut left is a store, or becomes one without `force`.
fn can_be_used(left: &Recorded, options: &OpenOptions) -> Result<(), String> {
    let reading = OpenOptions::existing().with_key_of(options).reading();
    let was = left.to_vec();
    match PageStore::on(Box::new(left.clone()), &reading) {
        Ok(_) | Err(StoreError::NotAStore(_) | StoreError::Key(_)) => {}
        Err(error) => return Err(format!("for reading: {error}")),
    }
    if left.to_vec() != was {
        return Err("it was changed by an opening for reading".into());
    }
    let open = || PageStore::on(Box::new(left.clone()), options).map_err(|error| error.to_string());
    let mut store = open()?;
    store.put(3, b"first");
    store.close().map_err(|error| error.to_string())?;
    let mut store = open()?;
    let report = store.check().map_err(|error| error.to_string())?;
    if store.page(3) == Some(b"first".to_vec()) && report.is_well() {
        Ok(())
    } else {
        Err(format!("{report:?}"))
    }
}

#[test]
fn a_cut_while_a_store_is_made_leaves_one_that_can_be_used() {
    let plain = small(Kind::Seal);
    let all = [
        plain.clone(),
        small(Kind::Scc),
        #[cfg(feature = "encryption")]
        OpenOptions {
            key: Some(crate::Key::raw([7; 32])),
            ..plain.clone()
        },
    ];
    for options in &all {
        // The second creation may use other options.
        let larger = OpenOptions {
            pages_per_block: 24,
            bytes: 4 << 20,
            ..options.clone()
        };
        let cuts = cut_short(options, false);
        assert!(cuts.len() > 50);
        for (number, left) in cuts.iter().enumerate() {
            for options in [options, &larger] {
                let done = can_be_used(&left.snapshot(), options);
                assert_eq!(done, Ok(()), "cut {number}");
            }
        }
        // Control: the creation's syncs do nothing.
        let cuts = cut_short(options, true);
        let bad = cuts
            .iter()
            .filter(|left| can_be_used(left, options).is_err());
        assert!(bad.count() > 0);
    }
}

#[test]
fn options_that_cannot_be_leave_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("new.flag");
    let with = |set: fn(&mut OpenOptions)| {
        let mut options = OpenOptions::default();
        set(&mut options);
        options
    };
    let wrong = [
        with(|options| options.space = 0.0),
        with(|options| options.space = f64::NAN),
        with(|options| options.pages_per_block = 5),
        with(|options| options.bytes = u64::MAX),
        with(|options| options.protocol = Kind::Cfc),
    ];
    for options in &wrong {
        let refused = [
            PageStore::open(&path, options).err(),
            Store::with(&path, options).err(),
        ];
        for error in refused {
            assert!(matches!(error, Some(StoreError::Options(_))), "{error:?}");
            assert!(!path.exists(), "{options:?}");
        }
        // An empty file stays empty.
        std::fs::write(&path, []).expect("room");
        Store::with(&path, options).err().expect("refused");
        assert_eq!(path.metadata().expect("it is there").len(), 0);
        std::fs::remove_file(&path).expect("it is there");
    }
    // A protocol that page stores support, and tables do not.
    let without_snapshots = with(|options| options.protocol = Kind::LightTx);
    let error = Store::with(&path, &without_snapshots)
        .err()
        .expect("refused");
    assert!(error.to_string().contains("snapshots"), "{error}");
    assert!(!path.exists());
    PageStore::open(&path, &without_snapshots).expect("pages have it");
    // Options that are invalid for a new store do not matter to an existing one.
    PageStore::open(&path, &wrong[2]).expect("it opens");
    crate::can_be_size(513).expect_err("no disk has it");
    crate::can_be_size(0).expect_err("no disk has it");
    crate::can_be_size(4096).expect("a disk has it");
}
