//! A limit on the memory of this process, the system's page cache included, and what it reads.

use anyhow::{Context, anyhow};
use rustix::fs::{Advice, fadvise};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A number of bytes that the system counts for this process.
fn counted(name: &str) -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/self/io")?;
    let line = text.lines().find(|line| line.starts_with(name));
    let line = line.ok_or_else(|| anyhow!("/proc/self/io has no {name}"))?;
    let number = line.split_whitespace().nth(1).context("a number")?;
    Ok(number.parse()?)
}

/// Bytes that were fetched from devices for this process, and that it caused to be written.
pub(crate) fn io() -> anyhow::Result<(u64, u64)> {
    Ok((counted("read_bytes")?, counted("write_bytes")?))
}

/// Bytes that were written to the device below a file or folder since the system started, by
/// whomever. Nothing where the system does not say so.
pub(crate) fn written_to_device(path: &Path) -> Option<u64> {
    let device = fs::metadata(path).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let sectors: u64 = text.split_whitespace().nth(6)?.parse().ok()?;
    Some(sectors * 512)
}

/// Where groups can be made, and what their limit is called: version 1, version 2.
const GROUPS: [(&str, &str); 2] = [
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
    ("/sys/fs/cgroup", "memory.max"),
];

fn group(root: &str, pid: u32) -> PathBuf {
    Path::new(root).join(format!("flagstone-versus-{pid}"))
}

/// Limits what this process takes from now on; what it has does not count.
pub(crate) fn to(bytes: u64) -> anyhow::Result<()> {
    let pid = std::process::id();
    for (root, limit) in GROUPS {
        let group = group(root, pid);
        if fs::create_dir(&group).is_err() {
            continue;
        }
        let set = fs::write(group.join(limit), bytes.to_string())
            .and_then(|()| fs::write(group.join("cgroup.procs"), pid.to_string()));
        if set.is_ok() {
            return Ok(());
        }
        let _ = fs::remove_dir(&group);
    }
    Err(anyhow!("no memory control group can be made"))
}

/// Removes the group of a process that has ended, if it had one. Returns whether the system has
/// killed it because it took more memory than the group may have.
pub(crate) fn gone(pid: u32) -> bool {
    let mut was_killed = false;
    for (root, _) in GROUPS {
        let group = group(root, pid);
        for counts in ["memory.oom_control", "memory.events"] {
            let text = fs::read_to_string(group.join(counts)).unwrap_or_default();
            let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
            was_killed |= kills.is_some_and(|kills| kills.trim() != "0");
        }
        let _ = fs::remove_dir(group);
    }
    was_killed
}

/// Takes files out of the system's page cache.
pub(crate) fn drop_cached(path: &Path) -> anyhow::Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            drop_cached(&entry?.path())?;
        }
        return Ok(());
    }
    let Some(file) = crate::if_there(fs::File::open(path))? else {
        return Ok(());
    };
    file.sync_all()?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    Ok(())
}
