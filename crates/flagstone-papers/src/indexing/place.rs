//! Storage of a measured index: the simulated device, memory, or a file or block device.
//!
//! A further place is a variant of [`Place`] and an arm in each of its functions.

use flagstone::commit::{Device, Kind, Options};
use flagstone::units::Nanos;
use flagstone_index::{BackingStore, DeviceStore, FileOptions, FileStore, MemStore};
use flagstone_lab::device::DeviceSpec;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The storage of an index.
#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    /// A simulated device, under a commit protocol.
    Sim {
        /// The device. Only as many of its blocks as needed are simulated.
        device: Box<DeviceSpec>,
        /// The protocol.
        protocol: Kind,
        /// Its variant.
        options: Options,
    },
    /// Pages in memory, without latency.
    Mem {
        /// Bytes of a page.
        page_bytes: usize,
    },
    /// A file that does not exist yet, or a block device with zeros at both ends. Time is
    /// wall-clock time of its requests.
    File {
        /// The path.
        path: PathBuf,
        /// Page size, and how the file is used.
        options: FileOptions,
    },
}

/// Minimum number of simulated blocks, per plane and in total: with fewer, open blocks and the
/// FTL's own blocks would be a large part of the reserve.
const LEAST_BLOCKS: u64 = 128;
const LEAST_IN_ALL: u64 = 1024;

impl Place {
    /// The name of the storage in results.
    pub fn name(&self) -> &'static str {
        match self {
            Place::Sim { .. } => "sim",
            Place::Mem { .. } => "mem",
            Place::File { .. } => "file",
        }
    }

    /// Page size in bytes.
    pub fn page_bytes(&self) -> usize {
        match self {
            Place::Sim { device, .. } => device.geometry.page_bytes as usize,
            Place::Mem { page_bytes } => *page_bytes,
            Place::File { options, .. } => options.page_bytes,
        }
    }

    /// Duration of a page read and of a page program, in seconds.
    pub fn costs(&self) -> Option<(f64, f64)> {
        match self {
            Place::Mem { .. } | Place::File { .. } => None,
            Place::Sim { device, .. } => {
                let seconds = |nanos: Nanos| nanos.0 as f64 / 1e9;
                let bytes = f64::from(device.geometry.page_bytes);
                let transfer = device.timing.transfer_ps_per_byte as f64 * bytes / 1e12;
                let timing = &device.timing;
                Some((
                    seconds(timing.read) + transfer,
                    seconds(timing.program) + transfer,
                ))
            }
        }
    }

    /// Length of the file before a run; `None` if the storage is no file or the file does not
    /// exist.
    pub(super) fn found(&self) -> Option<u64> {
        match self {
            Place::File { path, .. } => std::fs::metadata(path).ok().map(|meta| meta.len()),
            Place::Sim { .. } | Place::Mem { .. } => None,
        }
    }

    /// Restores the file to its state before a failed run: missing, or empty. A file with contents
    /// was never written.
    pub(super) fn restore(&self, before: Option<u64>) {
        let Place::File { path, .. } = self else {
            return;
        };
        // Best effort: the run's error is reported, not one from here.
        let is_file = std::fs::metadata(path).is_ok_and(|meta| meta.is_file());
        let _ = match before {
            _ if !is_file => Ok(()),
            None => std::fs::remove_file(path),
            Some(0) => File::create(path).map(drop),
            Some(_) => Ok(()),
        };
    }

    /// A blank store with space for `pages` pages, or for as many as the device has.
    ///
    /// # Errors
    /// The protocol does not run on the device, or the file is unusable or has contents.
    pub fn open(&self, pages: u64) -> Result<Box<dyn BackingStore>, String> {
        match self {
            Place::Mem { page_bytes } => {
                let pages = u32::try_from(pages).unwrap_or(u32::MAX);
                Ok(Box::new(MemStore::new(*page_bytes, pages)))
            }
            Place::File { path, options } => {
                let store = FileStore::open(path, options);
                let store = store.map_err(|error| error.to_string())?;
                let blank = is_blank(path);
                let blank = blank.map_err(|error| format!("{}: {error}", path.display()))?;
                if blank {
                    Ok(Box::new(store))
                } else if path.is_file() {
                    Err(format!(
                        "{} is not empty: remove it, or give another path",
                        path.display()
                    ))
                } else {
                    Err(format!(
                        "{} is not empty: if its data can be lost, clear its first and last MiB \
                         with dd or blkdiscard",
                        path.display()
                    ))
                }
            }
            Place::Sim {
                device,
                protocol,
                options,
            } => {
                let spec = fitted(device, pages);
                let kept = protocol.info().format.spare_bytes(&spec.config);
                // No run of an index on this device has a power cut, so the chip may drop contents
                // that are not needed any more.
                let chip = Box::new(spec.chip(kept).with_forgetting());
                let device = Device::open(chip, *protocol, spec.config, options, Nanos::ZERO);
                let device = device.map_err(|error| error.to_string())?;
                Ok(Box::new(DeviceStore::new(device)))
            }
        }
    }
}

/// Bytes at either end of a block device that must be zero. File systems, volume managers and
/// partition tables keep their signatures there, often not in the first page.
const ENDS: u64 = 1 << 20;

/// Whether a file or block device can be overwritten without losing data. A file is blank if it is
/// empty; a device never has length 0.
fn is_blank(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file.metadata()?.len() == 0);
    }
    ends_are_zeros(&mut file)
}

fn ends_are_zeros(file: &mut (impl Read + Seek)) -> io::Result<bool> {
    let end = file.seek(SeekFrom::End(0))?;
    for start in [0, end.saturating_sub(ENDS)] {
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(ENDS).read_to_end(&mut bytes)?;
        if bytes.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The device with as many blocks as `pages` pages need, equally many per plane.
fn fitted(device: &DeviceSpec, pages: u64) -> DeviceSpec {
    let mut spec = device.clone();
    let geometry = &mut spec.geometry;
    let planes = u64::from(geometry.channels)
        * u64::from(geometry.packages_per_channel)
        * u64::from(geometry.planes_per_package);
    let raw = (pages as f64 / (1.0 - spec.config.over_provision)).ceil() as u64;
    let blocks = raw.div_ceil(planes * u64::from(geometry.pages_per_block));
    let blocks = blocks.max(LEAST_BLOCKS).max(LEAST_IN_ALL.div_ceil(planes));
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    let all = geometry.blocks_per_plane;
    let kept = all.min(blocks);
    geometry.blocks_per_plane = kept;
    // Bad blocks stay where they are in their planes.
    spec.factory_bad.retain(|block| block.0 % all < kept);
    for block in &mut spec.factory_bad {
        block.0 = block.0 / all * kept + block.0 % all;
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagstone::units::Pbn;

    #[test]
    fn a_file_that_holds_something_is_refused() {
        let path = std::env::temp_dir().join(format!("flagstone-place-{}", std::process::id()));
        let options = FileOptions {
            direct: false,
            ..FileOptions::default()
        };
        let place = Place::File {
            path: path.clone(),
            options,
        };
        let open = || place.open(10).map(drop);
        assert_eq!(open(), Ok(()), "a file that is not there");
        assert_eq!(open(), Ok(()), "an empty one");
        std::fs::write(&path, [0; 4096]).expect("a file");
        let refused = open().unwrap_err();
        std::fs::remove_file(&path).expect("the file");
        assert!(refused.contains("is not empty"), "{refused}");
    }

    #[test]
    fn a_device_with_bad_blocks_can_be_larger_than_the_index() {
        let mut device = DeviceSpec::load("small").expect("a preset");
        let per_plane = device.geometry.blocks_per_plane;
        let last = device.geometry.blocks() - 1;
        device.factory_bad = [3, per_plane + 5, last].map(Pbn).into();
        let smaller = fitted(&device, 10);
        let kept = smaller.geometry.blocks_per_plane;
        assert!(kept < per_plane);
        assert_eq!(smaller.factory_bad, [3, kept + 5].map(Pbn));
        assert_eq!(fitted(&device, 1 << 40), device);
        let place = Place::Sim {
            device: Box::new(device),
            protocol: Kind::Plain,
            options: Options::default(),
        };
        assert_eq!(place.open(10).map(drop), Ok(()));
    }

    /// The places of signatures of ext4, MD, btrfs and the second partition table.
    #[test]
    fn a_device_is_blank_only_if_no_file_system_may_be_on_it() {
        let len = 4 << 20;
        let blank = |at: Option<usize>| {
            let mut bytes = vec![0u8; len];
            if let Some(at) = at {
                bytes[at] = 1;
            }
            ends_are_zeros(&mut std::io::Cursor::new(bytes)).expect("a read")
        };
        assert!(blank(None));
        for at in [0, 1080, 4096, 65_600, len - 512, len - 1] {
            assert!(!blank(Some(at)), "{at}");
        }
        let short = ends_are_zeros(&mut std::io::Cursor::new([0, 0, 7])).expect("a read");
        assert!(!short);
    }
}
