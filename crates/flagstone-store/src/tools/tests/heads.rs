//! One superblock is lost; it may be the newest, written when the store grew. An opening must
//! report that or have all data, and a repair must have all data.

use super::*;
use crate::superblock::{Superblock, superblock};
use flagstone::layout::get;

/// Kinds of damage to a superblock.
const DAMAGES: [&str; 4] = ["zeros", "ones", "a flipped byte", "the other copy"];

/// A store that has grown, left by a killed process, and its contents. With `wide` it has grown
/// because of high page numbers.
fn grown(path: &Path, protocol: Kind, wide: bool) -> Contents {
    let options = options().with_protocol(protocol);
    let live = path.with_extension("live");
    let mut store = PageStore::open(&live, &options).expect("a store");
    let mut pages = Contents::new();
    let (count, rounds) = if wide { (40, 1) } else { (300, 3) };
    for number in 0..count * rounds {
        let at = number * 7 % count;
        let data = format!("page {at} of transaction {number}").into_bytes();
        store.put(at, &data);
        pages.insert(at, data);
    }
    if wide {
        let at = store.device().pages() + 20;
        store.put(at, b"far away");
        pages.insert(at, b"far away".to_vec());
    }
    fs::copy(&live, path).expect("room");
    drop(store);
    fs::remove_file(&live).expect("it is there");
    pages
}

/// The sequence and number of blocks of a superblock.
fn said(bytes: &[u8], copy: usize) -> (u64, u64) {
    let page = &bytes[copy * MEDIUM_PAGE_BYTES..];
    (
        get(page, superblock::SEQUENCE),
        get(page, superblock::BLOCKS),
    )
}

fn damage(bytes: &mut [u8], copy: usize, how: &str) {
    let at = copy * MEDIUM_PAGE_BYTES;
    let page = at..at + MEDIUM_PAGE_BYTES;
    match how {
        "zeros" => bytes[page].fill(0),
        "ones" => bytes[page].fill(0xff),
        "a flipped byte" => bytes[at + 60] ^= 1,
        _ => {
            let other = (1 - copy) * MEDIUM_PAGE_BYTES;
            bytes.copy_within(other..other + MEDIUM_PAGE_BYTES, at);
        }
    }
}

#[test]
fn a_lost_superblock_by_which_the_store_has_grown_costs_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, to) = (folder.path().join("a.flag"), folder.path().join("b.flag"));
    let (mut refused, mut opened) = (0, 0);
    for (protocol, wide) in [
        (Kind::Seal, false),
        (Kind::Seal, true),
        (Kind::Scc, false),
        (Kind::Scc, true),
        (Kind::LightTx, true),
    ] {
        let pages = grown(&path, protocol, wide);
        let whole = fs::read(&path).expect("it can be read");
        let newest = usize::from(said(&whole, 1) > said(&whole, 0));
        assert!(said(&whole, newest).1 > said(&whole, 1 - newest).1);
        for copy in [newest, 1 - newest] {
            for how in DAMAGES {
                let what = format!("{protocol}, wide: {wide}, copy {copy} of {newest}: {how}");
                let mut bytes = whole.clone();
                damage(&mut bytes, copy, how);
                fs::write(&path, &bytes).expect("room");
                let reading = OpenOptions::existing().reading();
                match PageStore::open(&path, &reading) {
                    Ok(mut store) => {
                        opened += 1;
                        let found = crate::pages::tests::contents(&mut store);
                        let found = found.into_iter();
                        let found: Contents =
                            found.map(|(at, page)| (at, page.expect(&what))).collect();
                        assert!(found == pages, "{what}");
                        assert!(!store.check().expect("it can be read").is_well(), "{what}");
                    }
                    Err(error) => {
                        refused += 1;
                        let said = error.to_string();
                        let says = |why: &str| said.contains(why);
                        let is_named = says("newest superblock is damaged")
                            || says("what said that it had become larger is lost");
                        assert!(is_named, "{what}: {said}");
                    }
                }
                let report = mend(&path, &to, &Hints::default());
                let report = report.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(contents(&to) == pages, "{what}: {report:?}");
                assert!(report.is_whole() && !report.mended.is_empty(), "{what}");
            }
        }
        // Control: the newest superblock looks intact and counts too few blocks.
        if wide {
            let mut bytes = whole.clone();
            let at = newest * MEDIUM_PAGE_BYTES;
            let known = said(&whole, 1 - newest).1 as u32;
            let forged = Superblock::parse(&bytes[at..][..MEDIUM_PAGE_BYTES]);
            let mut forged = forged.expect("this version").expect("it is one");
            forged.blocks = known;
            forged.closed = Some(true);
            bytes[at..][..MEDIUM_PAGE_BYTES].copy_from_slice(&forged.emit());
            fs::write(&path, &bytes).expect("room");
            let report = mend(&path, &to, &Hints::default()).expect("it can be salvaged");
            // SEAL finds pages beyond the blocks of the superblock.
            let is_found = protocol == Kind::Seal;
            assert!(
                report.is_whole() != is_found && contents(&to) != pages,
                "{protocol}"
            );
        }
    }
    assert!(refused >= 20 && opened >= 20, "{refused}, {opened}");
}
