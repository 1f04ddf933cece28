//! A store on a block device: a loop device over a file. To attach one takes the rights of root.
//! Where they are missing the test says so and looks at nothing.

use flagstone::units::Lpn;
use flagstone_store::medium::{Disk, Medium};
use flagstone_store::{OpenOptions, PageStore, StoreError};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device, which is detached when it is dropped.
struct Loop(PathBuf);

impl Loop {
    fn new(over: &Path) -> Option<Loop> {
        let mut attach = Command::new("losetup");
        let attached = attach.args(["--find", "--show"]).arg(over).output().ok()?;
        let name = String::from_utf8(attached.stdout).ok()?;
        let is_there = attached.status.success() && Path::new(name.trim()).exists();
        is_there.then(|| Loop(name.trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .arg("--detach")
            .arg(&self.0)
            .status();
    }
}

/// Whether this process has the device open so that writes go past the cache.
fn is_open_past_the_cache(device: &Path) -> bool {
    let open = std::fs::read_dir("/proc/self/fd").expect("a process has files");
    open.flatten().any(|entry| {
        let is_it = std::fs::read_link(entry.path()).is_ok_and(|to| to == device);
        let info = format!("/proc/self/fdinfo/{}", entry.file_name().display());
        let info = std::fs::read_to_string(info).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok());
        is_it && flags.is_some_and(|flags| flags & 0o40_000 != 0)
    })
}

#[test]
fn a_store_on_a_block_device_is_written_past_the_cache() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("device");
    std::fs::write(&file, vec![0; 24 << 20]).expect("room");
    let Some(device) = Loop::new(&file) else {
        eprintln!("skipped: only root can attach a loop device");
        return;
    };
    // It is no empty file, whatever it holds.
    let refused = PageStore::open(&device.0, &OpenOptions::default()).err();
    assert!(
        matches!(refused, Some(StoreError::NotAStore(_))),
        "{refused:?}"
    );
    let left = std::fs::read(&device.0).expect("it can be read");
    assert!(left.iter().all(|&byte| byte == 0), "it was changed");
    let mut held = vec![0; 2_000];
    for round in 1..5_u32 {
        let options = OpenOptions::default().forced();
        let mut store = PageStore::open(&device.0, &options).expect("a store");
        assert!(is_open_past_the_cache(&device.0));
        let busy = PageStore::open(&device.0, &OpenOptions::existing());
        assert!(matches!(busy, Err(StoreError::InUse { .. })));
        for first in (0..450).step_by(3) {
            let tx = store.begin().expect("it begins");
            for at in (first..first + 3).map(|at| (at * 7 * round) % 2_000) {
                let page = vec![(at + round) as u8; PageStore::PAGE_BYTES - at as usize];
                store.write(tx, Lpn(at), &page).expect("room");
                held[at as usize] = round;
            }
            store.commit(tx).expect("it commits");
        }
        assert!(store.check().expect("it can be read").is_well());
        if round % 2 == 0 {
            store.close().expect("no fault");
        } else {
            // As a process that is killed leaves it.
            let left = std::fs::read(&device.0).expect("it can be read");
            let copy = folder.path().join("killed");
            std::fs::write(&copy, left).expect("room");
            drop(store);
            let killed = PageStore::open(&copy, &OpenOptions::existing()).expect("a store");
            assert_eq!(killed.info().closed, Some(false));
        }
        let reading = OpenOptions::existing().reading().uncached();
        let mut store = PageStore::open(&device.0, &reading).expect("a store");
        assert!(store.check().expect("it can be read").is_well());
        let mut page = vec![0; PageStore::PAGE_BYTES];
        for (at, &round) in (0..).zip(&held) {
            let bytes = store
                .read(None, Lpn(at), &mut page)
                .expect("it can be read");
            let is = bytes.map(|bytes| (bytes, page[0]));
            let wanted = (PageStore::PAGE_BYTES - at as usize, (at + round) as u8);
            assert_eq!(is, (round > 0).then_some(wanted), "page {at}");
        }
    }
    // It cannot grow, and says so.
    let mut store = PageStore::open(&device.0, &OpenOptions::existing()).expect("a store");
    let tx = store.begin().expect("it begins");
    let full = (2_000..20_000).find_map(|at| store.write(tx, Lpn(at), b"more").err());
    assert!(matches!(full, Some(StoreError::Full(_))), "{full:?}");
}

/// A file system of its own, which is taken down when it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(image: &Path, at: &Path) -> Option<Mounted> {
        let mut make = Command::new("mkfs.ext4");
        let made = make.arg("-q").arg(image).output().ok()?;
        let mut mount = Command::new("mount");
        let mounted = mount
            .args(["-o", "loop"])
            .arg(image)
            .arg(at)
            .output()
            .ok()?;
        (made.status.success() && mounted.status.success()).then(|| Mounted(at.into()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// ext4 gives what it has before it says that this is not enough: a store that asked for more took
/// the last of a file system, and had a file that was longer than it was.
#[test]
fn room_that_is_not_there_leaves_a_file_as_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let (image, at) = (folder.path().join("image"), folder.path().join("mounted"));
    std::fs::write(&image, vec![0; 24 << 20]).expect("room");
    std::fs::create_dir(&at).expect("room");
    let Some(mounted) = Mounted::new(&image, &at) else {
        eprintln!("skipped: only root can mount a file system");
        return;
    };
    let disk = Disk::open(&mounted.0.join("store.flag"), true, false).expect("a file");
    disk.reserve(1 << 20).expect("room");
    disk.reserve(100 << 20).expect_err("there is no such room");
    assert_eq!(disk.bytes().expect("it has some"), 1 << 20);
    // What it had found is free again.
    let other = Disk::open(&mounted.0.join("other.flag"), true, false).expect("a file");
    other.reserve(12 << 20).expect("room");
    drop((disk, other));
}
