//! Whole-store operations on undamaged stores: backup, repair and compaction must each leave a
//! store with the same contents, whatever happened before. They work on files.

use super::harness::{Done, failed};
use flagstone_store::OpenOptions;
use flagstone_store::medium::Recorded;
use flagstone_store::tools::{Hints, backup, compact, repair};
use std::fs;
use std::path::Path;

/// Number of copies that [`hold`] makes.
pub(super) const COPIES: u64 = 3;

/// Backs up, repairs and compacts the store on a medium, and lets `same` check the contents of each
/// result. The store need not have been closed.
pub(super) fn hold(
    medium: &Recorded,
    options: &OpenOptions,
    same: impl Fn(&Recorded) -> Done<()>,
) -> Done<()> {
    let folder = tempfile::tempdir().map_err(|error| format!("a folder: {error}"))?;
    let [from, to] = ["store", "copy"].map(|name| folder.path().join(name));
    let put = fs::write(&from, medium.to_vec());
    put.map_err(|error| format!("a file: {error}"))?;
    let judge = |of: &str, path: &Path| {
        let bytes = fs::read(path).map_err(|error| format!("{of}: {error}"))?;
        same(&Recorded::with(&bytes)).map_err(|what| format!("{of}: {what}"))
    };
    backup(&from, &to, options, false, &mut |_, _| ()).map_err(failed("a backup"))?;
    judge("a backup", &to)?;
    let hints = Hints::default();
    let repaired = repair(&from, &to, options, &hints, true, &mut |_, _| ());
    let report = repaired.map_err(failed("a repair"))?;
    if !report.is_whole() {
        return Err(format!("a repair of a whole store says {report:?}"));
    }
    judge("a repair", &to)?;
    compact(&from, options, &mut |_, _| ()).map_err(failed("a compaction"))?;
    judge("a compaction", &from)
}
