//! Limits and measures this process: its memory including the system's page cache, and its I/O.

use anyhow::{Context, anyhow};
use rustix::fs::{Advice, fadvise};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The counter `name` of `/proc/self/io`, in bytes.
fn counted(name: &str) -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/self/io")?;
    let line = text.lines().find(|line| line.starts_with(name));
    let line = line.ok_or_else(|| anyhow!("/proc/self/io has no {name}"))?;
    let number = line.split_whitespace().nth(1).context("a number")?;
    Ok(number.parse()?)
}

/// Bytes read from devices for this process, and bytes that it caused to be written.
pub(crate) fn io() -> anyhow::Result<(u64, u64)> {
    Ok((counted("read_bytes")?, counted("write_bytes")?))
}

/// Bytes written by all processes since the system started, to the device that holds a file or
/// folder. `None` if the system does not report them.
pub(crate) fn written_to_device(path: &Path) -> Option<u64> {
    let device = fs::metadata(path).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let sectors: u64 = text.split_whitespace().nth(6)?.parse().ok()?;
    Some(sectors * 512)
}

/// Folders in which control groups can be created, and the names of their limits: version 1,
/// version 2.
const GROUPS: [(&str, &str); 2] = [
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
    ("/sys/fs/cgroup", "memory.max"),
];

fn group(root: &str, pid: u32) -> PathBuf {
    Path::new(root).join(format!("flagstone-versus-{pid}"))
}

/// Limits the memory that this process allocates from now on. Memory allocated earlier does not
/// count.
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
    Err(anyhow!("cannot create a memory control group"))
}

/// Removes the control group of an ended process, if it had one. Returns whether the process was
/// killed for exceeding the group's memory limit.
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

/// Drops files from the system's page cache.
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
