//! Raw NAND as flash: pages, blocks and bad-block marks of a Linux MTD device.
//!
//! ```text
//!   page  | data | spare 62 | bytes of data 2 |  + out-of-band: the kernel's ECC, nothing of ours
//! ```
//!
//! The spare record lies in the last data bytes of a page, not in the out-of-band area: on most
//! controllers the ECC covers the data only, so a flipped bit in an out-of-band record would make
//! an intact page unreadable. The number of free out-of-band bytes also depends on the ECC: 38 of
//! 64 with a Hamming code, 10 with BCH-8, while `seal` with checksums needs 29. The cost is 64
//! bytes per page.
//!
//! | the device says | reads as |
//! |---|---|
//! | all bits of the page are set | blank |
//! | the ECC corrected bits | the right bytes, and how many were corrected |
//! | more errors than the ECC corrects | uncorrectable |
//! | a read failed (`EIO`) | uncorrectable: other pages may be readable |
//! | a program or an erase failed (`EIO`) | that page or block has failed; the layer above retires it |
//! | anything else | the device is gone: nothing succeeds until it is opened again |
//!
//! Each call returns when the chip has finished. So an operation is durable at once, and
//! [`Flash::sync`] has nothing to wait for.
//!
//! A block that fails in use is not marked bad on the chip: the places of the roots follow from the
//! marks, so the marks must not change after the first write. The layer above lists such blocks in
//! its roots. Only [`Mtd::wipe`] marks blocks, before the first use.
//!
//! Requires Linux 3.9 (`MEMWRITE`). Before Linux 6.1 (`MEMREAD`) ECC results come from counters of
//! the whole device, so no other process may read it meanwhile.

#![deny(unsafe_code)]

mod error;
#[doc(hidden)]
pub mod fuzzing;
#[allow(unsafe_code, reason = "the kernel gets addresses inside of records")]
mod ioctl;

pub use error::MtdError;

use flagstone::layout;
use flagstone::layout::{get, put};
use flagstone::nand::{Cell, Flash, FlashError, Geometry, Pairing, Read};
use flagstone::units::{Nanos, Pbn, Ppn};
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

layout! {
    /// The record after the data of a page on raw NAND.
    pub page_end: 64 => {
        SPARE: 62, "the spare area of the page, behind what its owner uses filled with 0xff";
        BYTES: 2,  "bytes of data";
    }
}

/// The record layouts on raw NAND, beyond those of the device.
pub const LAYOUTS: &[flagstone::layout::Layout] = &[page_end::RECORD];

/// Device types, as numbered by the kernel.
const NAND: u8 = 4;
const MLC_NAND: u8 = 8;

/// The largest page whose length fits [`page_end`].
const WRITE_BYTES_MAX: u32 = 1 << 15;

/// Properties that a device reports.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MtdInfo {
    /// Data bytes of a page, without out-of-band bytes.
    pub page_bytes: u32,
    /// Out-of-band bytes of a page, including those of the ECC.
    pub oob_bytes: u32,
    /// Out-of-band bytes that the ECC leaves free, if the kernel reports them.
    pub oob_free: Option<u32>,
    /// Bits that the ECC corrects per step, if the kernel reports it.
    pub ecc_strength: Option<u32>,
    /// Bytes of an ECC step, if the kernel reports it.
    pub ecc_step_bytes: Option<u32>,
    /// Pages of one block.
    pub pages_per_block: u32,
    /// Number of blocks.
    pub blocks: u32,
    /// The blocks that are marked bad.
    pub bad: Vec<Pbn>,
    /// Whether the kernel reports multi-level cells.
    pub is_mlc: bool,
}

/// Counters of operations since the device was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MtdStats {
    /// Pages read.
    pub reads: u64,
    /// Pages programmed.
    pub programs: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Bits that the ECC corrected.
    pub corrected: u64,
    /// Reads with more errors than the ECC corrects.
    pub uncorrectable: u64,
    /// Programs that failed.
    pub failed_programs: u64,
    /// Erases that failed.
    pub failed_erases: u64,
    /// System calls that failed; after the first one the device is unusable.
    pub refusals: u64,
}

/// Counters and errors of a device, for a program that uses the
/// [`Device`](flagstone::commit::Device) above it.
#[derive(Debug, Clone, Default)]
pub struct MtdNotes(Arc<Mutex<(MtdStats, Option<String>)>>);

impl MtdNotes {
    /// The counters since the device was opened.
    pub fn stats(&self) -> MtdStats {
        self.0.lock().expect("no thread panics here").0
    }

    /// The first error of a system call.
    pub fn trouble(&self) -> Option<String> {
        self.0.lock().expect("no thread panics here").1.clone()
    }

    fn count(&self, change: impl FnOnce(&mut MtdStats)) {
        change(&mut self.0.lock().expect("no thread panics here").0);
    }

    fn refuse(&self, what: String) {
        let mut notes = self.0.lock().expect("no thread panics here");
        notes.0.refusals += 1;
        notes.1.get_or_insert(what);
    }
}

/// An MTD device as flash, locked (`flock`) while it is open.
pub struct Mtd {
    file: File,
    path: PathBuf,
    info: MtdInfo,
    geometry: Geometry,
    is_bad: Vec<bool>,
    /// Whether reads take ECC results from the device's counters, because the kernel lacks
    /// `MEMREAD`.
    reads_by_counters: bool,
    is_broken: bool,
    clock: Nanos,
    page: Vec<u8>,
    notes: MtdNotes,
}

impl Mtd {
    /// Opens an MTD character device, such as `/dev/mtd0`. `pairing` says which pages share cells,
    /// since the kernel does not report it.
    ///
    /// ```no_run
    /// use flagstone::commit::{Device, Kind, Options};
    /// use flagstone::ftl::Config;
    /// use flagstone::nand::Pairing;
    /// use flagstone::units::Nanos;
    /// use flagstone_mtd::Mtd;
    /// use std::path::Path;
    ///
    /// let flash = Mtd::open(Path::new("/dev/mtd0"), Pairing::default())?;
    /// let (config, options) = (Config::default(), Options::default());
    /// let device = Device::open(Box::new(flash), Kind::Seal, config, &options, Nanos::ZERO)?;
    /// println!("{} pages", device.pages());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The device is missing or is no NAND, another process has it open, its geometry is not
    /// supported, or a system call fails.
    pub fn open(path: &Path, pairing: Pairing) -> Result<Mtd, MtdError> {
        let wrong = |why: &str| MtdError::unsuited(path, why);
        let fails = |what: &str, error: io::Error| MtdError::io(path, what, error);
        let kind = std::fs::metadata(path).map_err(|error| fails("looking at it", error))?;
        if !kind.file_type().is_char_device() {
            return Err(wrong(
                "not an MTD character device: give one such as /dev/mtd0 (not /dev/mtdblock0)",
            ));
        }
        let opened = OpenOptions::new().read(true).write(true).open(path);
        let mut file = opened.map_err(|error| fails("opening it", error))?;
        let raw = match ioctl::info(&file) {
            Ok(raw) => raw,
            Err(_) => return Err(wrong("not an MTD device: give one such as /dev/mtd0")),
        };
        if !matches!(raw.kind, NAND | MLC_NAND) {
            return Err(wrong(
                "this MTD device is not NAND flash: NOR flash and RAM are not supported",
            ));
        }
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(MtdError::InUse(path.into())),
            Err(error) => return Err(fails("locking it", error.into())),
        }
        let bytes = file.seek(SeekFrom::End(0));
        let bytes = bytes.map_err(|error| fails("asking for its size", error))?;
        let (info, geometry) = shape(path, &raw, bytes, pairing)?;
        let mut is_bad = Vec::new();
        for block in 0..info.blocks {
            let start = u64::from(block) * u64::from(raw.erase_bytes);
            let bad = ioctl::is_bad(&file, start);
            is_bad.push(bad.map_err(|error| fails("asking for bad blocks", error))?);
        }
        let bad = (0..info.blocks).map(Pbn).filter(|at| is_bad[at.index()]);
        Ok(Mtd {
            file,
            path: path.to_path_buf(),
            info: MtdInfo {
                bad: bad.collect(),
                ..info
            },
            geometry,
            is_bad,
            reads_by_counters: false,
            is_broken: false,
            clock: Nanos::ZERO,
            page: vec![0xff; raw.write_bytes as usize],
            notes: MtdNotes::default(),
        })
    }

    /// The properties of the device.
    pub fn info(&self) -> &MtdInfo {
        &self.info
    }

    /// A handle to counters and errors. It stays usable after the device was moved.
    pub fn notes(&self) -> MtdNotes {
        self.notes.clone()
    }

    /// Whether every page of every good block is readable and blank. Checks the first page of each
    /// block before all others.
    ///
    /// # Errors
    /// A system call fails.
    pub fn is_blank(&mut self, progress: &mut dyn FnMut(u64)) -> Result<bool, MtdError> {
        let pages = self.info.pages_per_block;
        for page in 0..pages {
            for block in 0..self.info.blocks {
                if self.is_bad[block as usize] {
                    continue;
                }
                let at = Ppn(block * pages + page);
                let ecc = self.fetch(at);
                let ecc = ecc.map_err(|error| self.refused("reading", error))?;
                progress(1);
                if ecc.is_lost || self.page.iter().any(|&byte| byte != 0xff) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Erases every good block, and with it all data. A block whose erase fails is marked bad on
    /// the chip. Returns these blocks.
    ///
    /// # Errors
    /// A system call fails.
    pub fn wipe(&mut self, progress: &mut dyn FnMut(u64)) -> Result<Vec<Pbn>, MtdError> {
        let mut failed = Vec::new();
        for block in (0..self.info.blocks).map(Pbn) {
            progress(1);
            if self.is_bad[block.index()] {
                continue;
            }
            let start = self.start_of_block(block);
            self.notes.count(|stats| stats.erases += 1);
            match ioctl::erase(&self.file, start, self.block_bytes()) {
                Ok(()) => {}
                Err(error) if is_of_chip(&error) => {
                    let marked = ioctl::mark_bad(&self.file, start);
                    marked.map_err(|error| self.refused("marking a bad block", error))?;
                    self.is_bad[block.index()] = true;
                    self.info.bad.push(block);
                    failed.push(block);
                }
                Err(error) => return Err(self.refused("erasing", error)),
            }
        }
        self.info.bad.sort_unstable();
        Ok(failed)
    }

    fn refused(&self, what: &str, error: io::Error) -> MtdError {
        MtdError::io(&self.path, what, error)
    }

    fn block_bytes(&self) -> u64 {
        u64::from(self.info.page_bytes) * u64::from(self.info.pages_per_block)
    }

    fn start_of_block(&self, block: Pbn) -> u64 {
        u64::from(block.0) * self.block_bytes()
    }

    fn start_of(&self, at: Ppn) -> u64 {
        u64::from(at.0) * u64::from(self.info.page_bytes)
    }

    /// Reads a page into the internal buffer.
    fn fetch(&mut self, at: Ppn) -> io::Result<ioctl::Ecc> {
        let start = self.start_of(at);
        if !self.reads_by_counters {
            match ioctl::read(&self.file, start, &mut self.page) {
                Err(error) if has_no_such_call(&error) => self.reads_by_counters = true,
                done => return done,
            }
        }
        let before = ioctl::ecc_stats(&self.file)?;
        self.file.read_exact_at(&mut self.page, start)?;
        let after = ioctl::ecc_stats(&self.file)?;
        Ok(ioctl::Ecc {
            corrected: after.corrected.wrapping_sub(before.corrected),
            is_lost: after.failed != before.failed,
        })
    }

    fn is_well(&self) -> Result<(), FlashError> {
        if self.is_broken {
            Err(FlashError::PowerLost)
        } else {
            Ok(())
        }
    }

    /// Records an error after which the device is unusable, and returns it for the caller. `what`
    /// names the operation.
    fn fails(&mut self, what: &str, error: &io::Error) -> FlashError {
        self.is_broken = true;
        let path = self.path.display();
        self.notes.refuse(format!("{path}: {what}: {error}"));
        FlashError::PowerLost
    }

    fn tick(&mut self, now: Nanos) -> Nanos {
        self.clock = self.clock.max(now) + Nanos(1);
        self.clock
    }
}

/// Whether the error reports a failed operation of the chip rather than a missing device.
fn is_of_chip(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

/// Whether the kernel lacks this ioctl.
fn has_no_such_call(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [rustix::io::Errno::NOTTY, rustix::io::Errno::OPNOTSUPP]
        .iter()
        .any(|errno| code == Some(errno.raw_os_error()))
}

/// Reads a number about the device from sysfs.
fn told(path: &Path, what: &str) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let file = Path::new("/sys/class/mtd").join(name).join(what);
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The geometry of a device.
fn shape(
    path: &Path,
    raw: &ioctl::Info,
    bytes: u64,
    pairing: Pairing,
) -> Result<(MtdInfo, Geometry), MtdError> {
    let unsuited = |why: String| MtdError::unsuited(path, &why);
    if raw.write_bytes == 0
        || raw.erase_bytes == 0
        || !raw.erase_bytes.is_multiple_of(raw.write_bytes)
    {
        return Err(unsuited(format!(
            "invalid geometry: blocks of {} bytes and pages of {} bytes",
            raw.erase_bytes, raw.write_bytes
        )));
    }
    if !(512..=WRITE_BYTES_MAX).contains(&raw.write_bytes) {
        return Err(unsuited(format!(
            "its pages have {} bytes; 512 to {WRITE_BYTES_MAX} are supported",
            raw.write_bytes
        )));
    }
    let blocks = u32::try_from(bytes / u64::from(raw.erase_bytes))
        .map_err(|_| unsuited(format!("it has {bytes} bytes, which is too large")))?;
    let info = MtdInfo {
        page_bytes: raw.write_bytes,
        oob_bytes: raw.oob_bytes,
        oob_free: told(path, "oobavail"),
        ecc_strength: told(path, "ecc_strength"),
        ecc_step_bytes: told(path, "ecc_step_size"),
        pages_per_block: raw.erase_bytes / raw.write_bytes,
        blocks,
        bad: Vec::new(),
        is_mlc: raw.kind == MLC_NAND,
    };
    let geometry = Geometry {
        channels: 1,
        packages_per_channel: 1,
        planes_per_package: 1,
        blocks_per_plane: blocks,
        pages_per_block: info.pages_per_block,
        page_bytes: raw.write_bytes - page_end::SIZE as u32,
        spare_bytes: page_end::SPARE.len() as u32,
        // The kernel's ECC allows one program per page, as on MLC.
        cell: Cell::Mlc,
        strict_order: true,
        pairing,
    };
    let valid = geometry.validate();
    valid.map_err(|error| unsuited(error.to_string()))?;
    Ok((info, geometry))
}

impl Flash for Mtd {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError> {
        self.is_well()?;
        let fetched = self.fetch(at);
        let done = self.tick(now);
        let ecc = match fetched {
            Err(error) if !is_of_chip(&error) => return Err(self.fails("reading", &error)),
            // `EIO`: the driver has no result for this read.
            Err(_) => ioctl::Ecc {
                corrected: 0,
                is_lost: true,
            },
            Ok(ecc) => ecc,
        };
        self.notes.count(|stats| {
            stats.reads += 1;
            stats.corrected += u64::from(ecc.corrected);
            stats.uncorrectable += u64::from(ecc.is_lost);
        });
        if ecc.is_lost {
            return Err(FlashError::Uncorrectable { at, done });
        }
        match parse(&self.page, data, spare) {
            Some(data_bytes) => Ok(Read {
                done,
                data_bytes,
                corrected: ecc.corrected.try_into().unwrap_or(u16::MAX),
            }),
            // The page was not written by this code.
            None => Err(FlashError::Uncorrectable { at, done }),
        }
    }

    fn program(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        self.is_well()?;
        emit(&mut self.page, data, spare);
        let programmed = ioctl::program(&self.file, self.start_of(at), &self.page);
        let done = self.tick(now);
        self.notes.count(|stats| stats.programs += 1);
        match programmed {
            Ok(()) => Ok(done),
            Err(error) if is_of_chip(&error) => {
                self.notes.count(|stats| stats.failed_programs += 1);
                Err(FlashError::ProgramFailed { at, done })
            }
            Err(error) => Err(self.fails("programming", &error)),
        }
    }

    fn reprogram(&mut self, _: Nanos, _: Ppn, _: usize, _: &[u8]) -> Result<Nanos, FlashError> {
        panic!("the ECC of raw NAND allows one program a page, as the geometry says");
    }

    fn erase(&mut self, now: Nanos, block: Pbn) -> Result<Nanos, FlashError> {
        self.is_well()?;
        let erased = ioctl::erase(&self.file, self.start_of_block(block), self.block_bytes());
        let done = self.tick(now);
        self.notes.count(|stats| stats.erases += 1);
        match erased {
            Ok(()) => Ok(done),
            Err(error) if is_of_chip(&error) => {
                self.notes.count(|stats| stats.failed_erases += 1);
                Err(FlashError::EraseFailed { block, done })
            }
            Err(error) => Err(self.fails("erasing", &error)),
        }
    }

    fn sync(&mut self, now: Nanos, until: Nanos) -> Result<Nanos, FlashError> {
        self.is_well()?;
        Ok(now.max(until))
    }

    fn is_factory_bad(&self, block: Pbn) -> bool {
        self.is_bad[block.index()]
    }
}

/// Fills a page with data and its spare record.
fn emit(page: &mut [u8], data: &[u8], spare: &[u8]) {
    let (body, end) = page.split_at_mut(page.len() - page_end::SIZE);
    let (used, rest) = body.split_at_mut(data.len());
    used.copy_from_slice(data);
    rest.fill(0xff);
    end.fill(0xff);
    end[page_end::SPARE][..spare.len()].copy_from_slice(spare);
    put(end, page_end::BYTES, data.len() as u64);
}

/// Splits a page into data and spare record. Returns the length of the data, or `None` if the page
/// was not written by this code.
fn parse(page: &[u8], data: &mut [u8], spare: &mut [u8]) -> Option<usize> {
    let (body, end) = page.split_at(page.len() - page_end::SIZE);
    spare.copy_from_slice(&end[page_end::SPARE][..spare.len()]);
    if page.iter().all(|&byte| byte == 0xff) {
        return Some(0);
    }
    let bytes = get(end, page_end::BYTES) as usize;
    if bytes > body.len() {
        return None;
    }
    let filled = bytes.min(data.len());
    data[..filled].copy_from_slice(&body[..filled]);
    Some(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_comes_back_as_it_was_and_a_blank_or_foreign_one_is_noticed() {
        let mut page = vec![0; 2048];
        let (mut data, mut spare) = (vec![0; 2048 - page_end::SIZE], [0; 4]);
        for len in [0, 1, data.len()] {
            let of: Vec<u8> = (0..len).map(|i| i as u8).collect();
            emit(&mut page, &of, b"mark");
            assert_eq!(parse(&page, &mut data, &mut spare), Some(len));
            assert_eq!((&data[..len], &spare), (&of[..], b"mark"));
        }
        page.fill(0xff);
        assert_eq!(parse(&page, &mut data, &mut spare), Some(0));
        assert_eq!(spare, [0xff; 4]);
        // An impossible length, and a page of another program.
        page[7] = 0;
        assert_eq!(parse(&page, &mut data, &mut spare), None);
    }

    #[test]
    fn what_is_no_nand_is_refused_with_what_to_name() {
        for (path, why) in [
            ("/dev/null", "not an MTD device"),
            ("/", "not an MTD character"),
        ] {
            let Err(error) = Mtd::open(Path::new(path), Pairing::None) else {
                panic!("{path} is no NAND");
            };
            let said = error.to_string();
            assert!(said.contains(why) && said.contains("/dev/mtd0"), "{said}");
        }
    }
}
