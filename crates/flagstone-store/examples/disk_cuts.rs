//! Power cuts under a disk that contains a file system.
//!
//! A folder has the recorded disk requests of a file system (`scripts/disk-campaign` records them
//! from a mounted ext4). They are replayed on a [`Volume`], on a medium that is cut many times, at
//! its writes and syncs. After each cut the store is opened, and the disk in it must pass three
//! checks:
//!
//! 1. Each byte is as it was at the last completed flush, or at the flush in progress.
//! 2. `e2fsck` finds the file system clean after replaying its journal.
//! 3. Each file whose fsync has returned is complete.
//!
//! The last two checks are made once for equal disks.
//!
//! ```sh
//! cargo run --release -p flagstone-store --example disk_cuts -- FOLDER CUTS [torn|lies]
//! ```
//!
//! Controls, which must find a failure: `torn` commits each write separately, and `lies` uses a
//! medium whose syncs do nothing. Exit code 1 means that a failure was found.

use flagstone_store::medium::{Landing, Recorded};
use flagstone_store::{OpenOptions, PageStore, Volume};
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::error::Error;
use std::hash::Hasher;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};

/// A line of the history.
enum Event {
    Write {
        at: u64,
        data: Vec<u8>,
    },
    Trim {
        at: u64,
        bytes: u64,
    },
    Flush,
    /// A file system exists from here on.
    Formatted,
    /// This file is durable from here on, with the contents in the folder `files`.
    Synced(String),
}

struct History {
    size: u64,
    events: Vec<Event>,
}

impl History {
    fn read(folder: &Path) -> Result<History, Box<dyn Error>> {
        let path = folder.join("history");
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let mut data = std::fs::File::open(folder.join("data"))?;
        let (mut size, mut events) = (0, Vec::new());
        for (line, number) in text.lines().zip(1..) {
            let wrong = || format!("{}: line {number}: `{line}`", path.display());
            let words: Vec<&str> = line.split(' ').collect();
            let count = |at: usize| words.get(at).and_then(|word| word.parse().ok());
            let number = |at| count(at).ok_or_else(wrong);
            match words[0] {
                "size" => size = number(1)?,
                "write" => {
                    let mut bytes = vec![0; number(2)? as usize];
                    data.read_exact(&mut bytes)?;
                    events.push(Event::Write {
                        at: number(1)?,
                        data: bytes,
                    });
                }
                "trim" => events.push(Event::Trim {
                    at: number(1)?,
                    bytes: number(2)?,
                }),
                "flush" => events.push(Event::Flush),
                "formatted" => events.push(Event::Formatted),
                "synced" => events.push(Event::Synced(words[1..].join(" "))),
                _ => return Err(wrong().into()),
            }
        }
        Ok(History { size, events })
    }
}

/// The allowed states of the disk, and the files that it must have.
#[derive(Default)]
struct Right {
    /// Checksum of the disk at the last completed flush.
    flushed: u64,
    /// Checksum of the disk at the flush in progress.
    flushing: Option<u64>,
    is_formatted: bool,
    /// Files whose fsync has ended.
    synced: Vec<String>,
}

#[derive(Default)]
struct Found {
    cuts: u64,
    /// Disks that equal neither the state at the last flush nor that at the flush in progress.
    torn: u64,
    /// File systems that are not clean.
    unclean: u64,
    /// Synced files that were missing or incomplete.
    lost: u64,
    first: Option<String>,
}

impl Found {
    fn note(&mut self, what: impl FnOnce() -> String) {
        let cuts = self.cuts;
        self.first
            .get_or_insert_with(|| format!("cut {cuts}: {}", what()));
    }

    fn all(&self) -> u64 {
        self.torn + self.unclean + self.lost
    }
}

fn sum(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// A pseudo-random number, the same in every run (splitmix64).
fn dice(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Whether a file system is clean; if not, the output of e2fsck.
type Verdict = Result<(), String>;

/// The results for a file system: whether it is clean, and which files are complete.
struct Examined {
    clean: Verdict,
    files: HashMap<String, bool>,
}

/// Examines file systems, equal ones only once.
struct Examiner {
    folder: PathBuf,
    known: HashMap<u64, Examined>,
}

impl Examiner {
    fn examine(
        &mut self,
        sum: u64,
        disk: &[u8],
        synced: &[String],
    ) -> Result<(&Verdict, u64), Box<dyn Error>> {
        let path = self.folder.join("cut.img");
        let is_new = !self.known.contains_key(&sum);
        let known = self.known.entry(sum).or_insert_with(|| Examined {
            clean: Ok(()),
            files: HashMap::new(),
        });
        let is_asked = |name: &&String| !known.files.contains_key(*name);
        let asked: Vec<String> = synced.iter().filter(is_asked).cloned().collect();
        if is_new || !asked.is_empty() {
            std::fs::write(&path, disk)?;
            // The first run replays the journal, and may find nothing else to do.
            let replayed = e2fsck(&path, "-fy")?;
            known.clean = replayed.and_then(|()| match e2fsck(&path, "-fn") {
                Ok(checked) => checked,
                Err(error) => Err(error.to_string()),
            });
            for name in asked {
                let dumped = self.folder.join("cut.file");
                let _ = std::fs::remove_file(&dumped);
                let request = format!("dump \"/{name}\" {}", dumped.display());
                let debugfs = Command::new("debugfs")
                    .arg("-R")
                    .arg(request)
                    .arg(&path)
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status();
                debugfs.map_err(|error| format!("debugfs: {error}: install e2fsprogs"))?;
                let right = std::fs::read(self.folder.join("files").join(&name))?;
                let is_whole = std::fs::read(&dumped).is_ok_and(|bytes| bytes == right);
                known.files.insert(name, is_whole);
            }
        }
        let lost = synced.iter().filter(|name| !known.files[*name]).count() as u64;
        Ok((&known.clean, lost))
    }
}

/// The verdict of e2fsck on a file system. Exit code 1 means that it has replayed the journal.
/// Besides that it corrects only the totals in the superblock: ext4 does not keep them in its
/// journal, and a mount counts them again.
fn e2fsck(path: &Path, how: &str) -> Result<Verdict, Box<dyn Error>> {
    let done = Command::new("e2fsck").arg(how).arg(path).output();
    let done = done.map_err(|error| format!("e2fsck: {error}: install e2fsprogs"))?;
    let said = String::from_utf8_lossy(&done.stdout);
    let lines: Vec<&str> = said.lines().filter(|line| !line.is_empty()).collect();
    let is_question = |line: &str| line.ends_with("? yes") || line.ends_with("? no");
    let is_total = |line: &str| {
        let mut totals = ["Free blocks count wrong (", "Free inodes count wrong ("].iter();
        totals.any(|total| line.starts_with(total))
    };
    let mended = lines
        .windows(2)
        .find(|pair| is_question(pair[1]) && !is_total(pair[0]));
    Ok(match (done.status.code(), mended) {
        (Some(0 | 1), None) => Ok(()),
        (code, Some(lines)) => Err(format!(
            "e2fsck {how}, exit code {code:?}: {}",
            lines.join(" ")
        )),
        (code, None) => Err(format!("e2fsck {how}, exit code {code:?}: {said}")),
    })
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().expect("one thread")
}

fn disk_on(medium: Recorded, size: u64) -> Result<Vec<u8>, Box<dyn Error>> {
    let store = PageStore::on(Box::new(medium), &OpenOptions::existing())?;
    let mut disk = Volume::open(store)?;
    let mut bytes = vec![0; size as usize];
    disk.read(0, &mut bytes)?;
    Ok(bytes)
}

fn run() -> Result<Found, Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let usage = "usage: disk_cuts FOLDER CUTS [torn|lies]";
    let (folder, cuts) = args.first().zip(args.get(1)).ok_or(usage)?;
    let cuts: u64 = cuts.parse().map_err(|_| usage)?;
    let control = args.get(2).map(String::as_str);
    if !matches!(control, None | Some("torn" | "lies")) {
        return Err(usage.into());
    }
    let history = History::read(Path::new(folder))?;
    let store = |medium: Recorded| PageStore::on(Box::new(medium), &OpenOptions::default());
    // Counts the operations of the medium, to spread the cuts over all of them.
    let play = |medium: &Recorded, right: &Mutex<Right>| -> Result<(), Box<dyn Error>> {
        let mut disk = Volume::create(store(medium.clone())?, history.size)?;
        if control == Some("torn") {
            disk.set_transaction_bytes(1);
        }
        let mut model = vec![0; history.size as usize];
        locked(right).flushed = sum(&model);
        if control == Some("lies") {
            medium.lie();
        }
        for event in &history.events {
            match event {
                Event::Write { at, data } => {
                    disk.write(*at, data)?;
                    model[*at as usize..][..data.len()].copy_from_slice(data);
                }
                Event::Trim { at, bytes } => {
                    disk.trim(*at, *bytes)?;
                    model[*at as usize..][..*bytes as usize].fill(0);
                }
                Event::Flush => {
                    let now = sum(&model);
                    locked(right).flushing = Some(now);
                    disk.flush()?;
                    let mut right = locked(right);
                    (right.flushed, right.flushing) = (now, None);
                }
                Event::Formatted => locked(right).is_formatted = true,
                Event::Synced(name) => locked(right).synced.push(name.clone()),
            }
        }
        if control.is_none() && disk.early_commits() > 0 {
            return Err("a transaction of the history is larger than the bound of a disk".into());
        }
        Ok(())
    };
    let medium = Recorded::default();
    play(&medium, &Mutex::default())?;
    let operations = medium.operations();
    let (medium, right) = (Recorded::default(), Arc::new(Mutex::new(Right::default())));
    // The medium is not cut while the disk is being created.
    store(medium.clone())?.close()?;
    let found = Arc::new(Mutex::new(Found::default()));
    let failed: Arc<Mutex<Option<String>>> = Arc::default();
    medium.watch(Some({
        let (right, found, failed) = (Arc::clone(&right), Arc::clone(&found), Arc::clone(&failed));
        let (size, mut state) = (history.size, 17);
        let mut examiner = Examiner {
            folder: folder.into(),
            known: HashMap::new(),
        };
        Box::new(move |medium: &Recorded| {
            let (right, mut found) = (locked(&right), locked(&found));
            let wanted = (medium.operations() * cuts).div_ceil(operations.max(1));
            while found.cuts < wanted && right.flushed != 0 {
                let landing = match dice(&mut state) % 4 {
                    0 => Landing::Nothing,
                    1 => Landing::Everything,
                    2 => Landing::First(dice(&mut state) % (medium.pending() + 1)),
                    _ => Landing::Sectors(dice(&mut state)),
                };
                found.cuts += 1;
                if found.cuts.is_multiple_of(100) {
                    eprintln!("{} of {cuts} cuts, {} findings", found.cuts, found.all());
                }
                let disk = match disk_on(medium.cut(landing), size) {
                    Ok(disk) => disk,
                    Err(error) => {
                        found.torn += 1;
                        found.note(|| error.to_string());
                        continue;
                    }
                };
                let sum = sum(&disk);
                if sum != right.flushed && Some(sum) != right.flushing {
                    found.torn += 1;
                    found.note(|| "the disk is as at no flush that it may be as at".into());
                }
                if right.is_formatted {
                    match examiner.examine(sum, &disk, &right.synced) {
                        Ok((clean, lost)) => {
                            if let Err(why) = clean {
                                found.unclean += 1;
                                found.note(|| why.clone());
                            }
                            if lost > 0 {
                                found.lost += 1;
                                found.note(|| format!("{lost} synced files are not whole"));
                            }
                        }
                        Err(error) => _ = locked(&failed).get_or_insert(error.to_string()),
                    }
                }
            }
        })
    }));
    play(&medium, &right)?;
    medium.watch(None);
    if let Some(why) = locked(&failed).take() {
        return Err(why.into());
    }
    let synced = locked(&right).synced.len();
    eprintln!(
        "{} requests, {synced} synced files",
        history.events.len() - synced
    );
    let found = std::mem::take(&mut *locked(&found));
    Ok(found)
}

fn main() -> ExitCode {
    match run() {
        Ok(found) => {
            println!(
                "{} cuts: {} disks torn, {} file systems unclean, {} without synced files",
                found.cuts, found.torn, found.unclean, found.lost
            );
            if let Some(first) = &found.first {
                println!("the first: {first}");
            }
            ExitCode::from(u8::from(found.all() > 0))
        }
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(2)
        }
    }
}
