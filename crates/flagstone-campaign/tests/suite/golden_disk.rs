//! Golden disks: what each version of the format of a disk in a store was like. A program opens
//! those of all versions that it reads, and finds what they held.
//! data/golden/README.md says how they are made.

use super::golden_files;
use flagstone_store::medium::{Landing, Recorded};
use flagstone_store::{OpenOptions, PageStore, StoreError, Volume};
use std::path::PathBuf;

/// The version of the format of disks that this program writes.
const VERSION: u64 = 1;

/// Bytes of the disk: more than a page of tails serves, and no whole number of chunks.
const BYTES: u64 = 300 * 1024 + 512;
const REQUESTS: u64 = 120;

fn path(version: u64) -> PathBuf {
    golden_files::path(&format!("disk-v{version}/store.zst"))
}

/// The request of this number: where it begins, how long it is, and the byte that it writes;
/// nothing for a trim.
fn request(number: u64) -> (u64, usize, Option<u8>) {
    let bytes = [512, 4096, 700, 9000][number as usize % 4];
    let at = number * 7_919 * 512 % (BYTES - bytes);
    let trims = number % 11 == 10;
    (at, bytes as usize, (!trims).then_some(number as u8 + 1))
}

/// All that a disk holds.
fn contents(disk: &mut Volume<PageStore>) -> Result<Vec<u8>, StoreError> {
    let mut bytes = vec![0; disk.size() as usize];
    disk.read(0, &mut bytes)?;
    Ok(bytes)
}

/// Carries out all requests, with a flush after every third, and returns what the disk held at the
/// last one. Later writes are lost in the cut.
fn make() -> Result<(Vec<u8>, Vec<u8>), StoreError> {
    let medium = Recorded::default();
    let mut options = OpenOptions::default();
    options.pages_per_block = 16;
    let store = PageStore::on(Box::new(medium.clone()), &options)?;
    let mut disk = Volume::create(store, BYTES)?;
    let mut held = Vec::new();
    for number in 0..REQUESTS {
        let (at, bytes, byte) = request(number);
        match byte {
            Some(byte) => disk.write(at, &vec![byte; bytes])?,
            None => disk.trim(at, bytes as u64)?,
        }
        if number % 3 == 2 && number + 3 < REQUESTS {
            disk.flush()?;
            held = contents(&mut disk)?;
        }
    }
    Ok((medium.cut(Landing::Nothing).to_vec(), held))
}

#[test]
fn golden_disks_are_opened_with_what_they_held() {
    let (bytes, held) = make().expect("a disk");
    golden_files::make(&path(VERSION), || bytes);
    for version in 1..=VERSION {
        let golden = golden_files::read(&path(version));
        for options in [OpenOptions::existing().reading(), OpenOptions::existing()] {
            let medium = Recorded::with(&golden);
            let store = PageStore::on(Box::new(medium), &options).expect("it opens");
            let mut disk = Volume::open(store).expect("it is a disk");
            assert_eq!(disk.size(), BYTES);
            assert!(contents(&mut disk).expect("it can be read") == held);
        }
    }
    assert!(held.iter().any(|&byte| byte > 0));
}

#[test]
fn a_disk_of_a_later_version_is_refused() {
    let (bytes, _) = make().expect("a disk");
    let medium = Recorded::with(&bytes);
    let open = || PageStore::on(Box::new(medium.clone()), &OpenOptions::existing());
    let mut store = open().expect("it opens");
    let mut first = vec![0; PageStore::PAGE_BYTES];
    let at = flagstone::units::Lpn(0);
    let has = store.read(None, at, &mut first).expect("it can be read");
    let has = has.expect("it holds something");
    // Behind the eight letters that it begins with.
    first[8] += 1;
    let tx = store.begin().expect("it begins");
    store.write(tx, at, &first[..has]).expect("a write");
    store.commit(tx).expect("it commits");
    drop(store);
    let Err(error) = Volume::open(open().expect("it opens")) else {
        panic!("it is opened");
    };
    assert!(error.to_string().contains("version 2"), "{error}");
}
