//! A store stays as it is open while it is read.

use super::*;
use flagstone_store::Asked;

/// Options for reading or writing.
fn how(read_only: bool) -> How {
    How {
        create: !read_only,
        read_only,
        ..How::default()
    }
}

#[test]
fn a_store_is_not_opened_anew_while_it_is_copied() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.flag");
    let stores = Arc::new(Stores::new(Box::new(Files)));
    let connect = |read_only| stores.connect(&path, how(read_only)).expect("connected");
    connect(false).close();
    let mut reader = connect(true);
    let copying = reader.begin_copy().expect("a snapshot");
    let mut writer = connect(false);
    let busy = writer
        .lock(Level::Shared, || Aim::Write)
        .expect_err("it is read");
    assert_eq!(busy.kind, TroubleKind::Busy);
    drop(copying);
    assert_eq!(writer.lock(Level::Shared, || Aim::Write), Ok(true));
    // Its snapshot was released.
    let copy = folder.path().join("copy.flag");
    assert_eq!(reader.backup(&copy), Ok(0));
    assert!(
        writer
            .shared
            .lock()
            .expect("no panic")
            .locks
            .others(writer.id)
            .next()
            .is_none()
    );
    writer.close();
    reader.close();
}

/// A database whose groups find no room.
struct NoRoom {
    has_tx: bool,
    has_joined: bool,
}

impl Bytes for NoRoom {
    fn size(&self, _: View) -> u64 {
        1 << 20
    }

    fn read(&mut self, _: View, _: u64, into: &mut [u8]) -> Result<usize, Trouble> {
        into.fill(0);
        Ok(into.len())
    }

    fn write(&mut self, _: u64, _: &[u8]) -> Result<(), Trouble> {
        self.has_tx = true;
        Ok(())
    }

    fn truncate(&mut self, _: u64) -> Result<(), Trouble> {
        Ok(())
    }

    fn has_changes(&self) -> bool {
        self.has_tx
    }

    fn commit(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    fn can_join(&self) -> bool {
        true
    }

    fn may_join(&self) -> bool {
        true
    }

    fn join(&mut self) {
        (self.has_tx, self.has_joined) = (false, true);
    }

    fn has_joined(&self) -> bool {
        self.has_joined
    }

    fn commit_joined(&mut self) -> Result<Asked, Trouble> {
        Err(Trouble::new(TroubleKind::Full, "there is no room"))
    }

    fn drop_joined(&mut self) {
        self.has_joined = false;
    }

    fn abort(&mut self) {
        self.has_tx = false;
    }

    fn snapshot(&mut self) -> Result<Option<u64>, Trouble> {
        Ok(Some(1))
    }
}

impl Backing for NoRoom {
    fn open(&self, _: &Path, _: &How) -> Result<Box<dyn Bytes>, Trouble> {
        Ok(Box::new(NoRoom {
            has_tx: false,
            has_joined: false,
        }))
    }
}

#[test]
fn who_has_begun_with_what_is_gone_does_not_go_on_from_what_there_is() {
    let backing = NoRoom {
        has_tx: false,
        has_joined: false,
    };
    let stores = Arc::new(Stores::new(Box::new(backing)));
    let connect = || stores.connect(Path::new("there"), how(false));
    let [mut first, mut other, mut early] = std::array::from_fn(|_| connect().expect("connected"));
    let take = |handle: &mut Handle, level| handle.lock(level, || Aim::Write);
    for level in [Level::Shared, Level::Reserved, Level::Exclusive] {
        assert_eq!(take(&mut first, level), Ok(true));
    }
    first.write(4096, &[1; 4096]).expect("it is kept");
    let group = first.join().expect("it joins").expect("a group");
    assert_eq!(take(&mut early, Level::Shared), Ok(true));
    assert_eq!(early.read(0, &mut [0; 512]), Ok(512));
    first.shared.wait_for(&group).expect_err("there is no room");
    // It gets a snapshot, of the newest state.
    for level in [Level::Shared, Level::Reserved, Level::Exclusive] {
        assert_eq!(take(&mut other, level), Ok(true));
    }
    early.read(4096, &mut [0; 512]).expect_err("another state");
    other.unlock(Level::None).expect("it ends");
    assert_eq!(take(&mut early, Level::Reserved), Ok(false));
    early.unlock(Level::None).expect("it ends");
    for level in [Level::Shared, Level::Reserved] {
        assert_eq!(take(&mut early, level), Ok(true), "it begins again");
    }
}

/// A store that may only be read, and that another process writes.
struct BusyToRead;

impl Backing for BusyToRead {
    fn open(&self, _: &Path, how: &How) -> Result<Box<dyn Bytes>, Trouble> {
        let kind = if how.read_only {
            TroubleKind::Busy
        } else {
            TroubleKind::Denied
        };
        Err(Trouble::new(kind, "not now"))
    }
}

#[test]
fn a_store_that_may_only_be_read_and_is_busy_is_opened_at_the_first_lock() {
    let stores = Arc::new(Stores::new(Box::new(BusyToRead)));
    let connected = stores.connect(Path::new("there"), how(false));
    let mut reader = connected.expect("a store that is busy is no error yet");
    let busy = reader.lock(Level::Shared, || Aim::Read).expect_err("it is");
    assert_eq!(busy.kind, TroubleKind::Busy);
}
