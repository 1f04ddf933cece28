//! A store stays as it is open while it is read.

use super::*;

/// A database for reading or for writing.
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
    // It has given its snapshot back.
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
