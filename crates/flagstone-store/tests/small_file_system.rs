//! A store on a file system with little room: ext4 over a file. To mount one takes the rights of
//! root. Where they are missing the test says so and looks at nothing.

use flagstone_store::{Store, StoreError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// A mounted file system, which is unmounted when it is dropped.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(folder: &Path, bytes: usize) -> Option<Mounted> {
        let (image, point) = (folder.join("image"), tempfile::tempdir_in(folder));
        std::fs::write(&image, vec![0; bytes]).expect("room");
        let point = point.expect("a folder");
        let succeeds = |command: &mut Command| command.output().is_ok_and(|it| it.status.success());
        let made = succeeds(
            Command::new("mkfs.ext4")
                .args(["-q", "-m", "0"])
                .arg(&image),
        );
        let mount = || {
            succeeds(
                Command::new("mount")
                    .args(["-o", "loop"])
                    .arg(&image)
                    .arg(point.path()),
            )
        };
        (made && mount()).then_some(Mounted(point))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

/// Fails if a growth without room takes what is left of the file system: then the store refuses
/// every other write, and so do other programs on that file system.
#[test]
fn a_request_without_room_leaves_the_file_system_its_room() {
    for bytes in [9 << 20, 16 << 20] {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(mounted) = Mounted::new(folder.path(), bytes) else {
            eprintln!("skipped: only root can mount a file system");
            return;
        };
        let path = mounted.0.path().join("store.flag");
        let taken = || std::fs::metadata(&path).expect("a file").blocks() * 512;
        let store = Store::open(&path).expect("a store");
        store.insert("files", b"small", b"1").expect("room");
        let before = taken();
        let refused = store.insert("files", b"large", &vec![7; 100 << 20]);
        let is_full = matches!(refused, Err(StoreError::Full(_)));
        assert!(is_full, "{bytes}: {refused:?}");
        assert!(
            taken() <= before + (64 << 10),
            "{bytes}: {} of {before}",
            taken()
        );
        store.insert("files", b"other", b"2").expect("room");
        store.close().expect("it closes");
    }
}
