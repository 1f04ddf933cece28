//! Saves a device's steady state in a file: its flash contents, since nothing else survives a
//! restart. [`load`] starts the device from it as after a power cut while idle: commits that were
//! waiting for their group are lost.
//!
//! ```text
//!   magic 8 | version 2 | bytes of the head 4 | head (JSON) | payload (one zstd frame)
//! ```
//!
//! The head describes the device ([`Head`]), and has length and SHA-256 of the unpacked payload.
//! The payload has, in little-endian numbers: program counts (1 byte per page), spare areas,
//! summary marks (2 bytes per block), erase counts (4), next pages (2); then factory bad blocks and
//! worn-out blocks, each a count (4) and numbers (4); damaged pages: a count (4), then page (4) and
//! kind (1: 1 unreadable, 2 weak); pages with data: a count (4), then page (4), length (4) and the
//! bytes.

use crate::inputs;
use crate::output::{self, Output};
use crate::trace::input::hex;
use flagstone::commit::{Device, DeviceError, Kind, Options};
use flagstone::ftl::Config;
use flagstone::nand::{Cell, Chip, Contents, Damage, Geometry, Pairing, Timing};
use flagstone::units::{Nanos, Pbn, Ppn};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"FLGSTIMG";
const VERSION: u16 = 2;
/// Exceeds the length of any valid head. The length stated in a file is not trusted.
const HEAD_MAX: usize = 1 << 16;

/// Configuration of a device; a loaded device must have the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// The protocol.
    pub kind: Kind,
    /// Configuration of the FTL.
    pub config: Config,
    /// Variants of the protocol.
    pub options: Options,
}

/// The head of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    channels: u32,
    packages_per_channel: u32,
    planes_per_package: u32,
    blocks_per_plane: u32,
    pages_per_block: u32,
    page_bytes: u32,
    spare_bytes: u32,
    /// `None` for cells that cannot be programmed twice.
    partial_programs: Option<u8>,
    strict_order: bool,
    /// Empty if no pages share cells.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pairing: String,
    spare_kept: u32,
    protocol: String,
    config: String,
    options: String,
    payload_bytes: u64,
    payload_sha256: String,
}

/// Why a file could not be written or read.
#[derive(Debug)]
pub struct ImageError {
    path: PathBuf,
    why: Why,
}

#[derive(Debug)]
enum Why {
    Io(&'static str, std::io::Error),
    Foreign,
    Version(u16),
    Truncated,
    Damaged(String),
    /// The differing property, its value in the file, and the expected one.
    Mismatch(&'static str, String, String),
    Device(DeviceError),
    Output(output::Why),
    NoChip,
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.why {
            Why::Io(what, error) => write!(f, "{path} could not be {what}: {error}"),
            Why::Foreign => write!(f, "{path} is not the image of a device"),
            Why::Version(found) => write!(
                f,
                "{path} has version {found} of the image format, this program reads {VERSION}: \
                 make the image again"
            ),
            Why::Truncated => write!(f, "{path} ends early: make the image again"),
            Why::Damaged(what) => write!(f, "{path} is damaged: {what}; make the image again"),
            Why::Mismatch(what, found, asked) => write!(
                f,
                "{path} holds a device with another {what}: {found} in the file, {asked} requested"
            ),
            Why::Output(why) => write!(f, "{path} cannot be written: {why}"),
            Why::Device(error) => write!(f, "the device in {path} does not start: {error}"),
            Why::NoChip => write!(
                f,
                "{path} was not written: only a simulated chip without middleware can be saved"
            ),
        }
    }
}

impl std::error::Error for ImageError {}

/// Saves a device that runs directly on a [`Chip`]. Returns the length of the file.
///
/// # Errors
/// The file cannot be written, or the device is not on a chip.
pub fn save(output: &Output, device: &Device, setup: &Setup) -> Result<u64, ImageError> {
    let fail = |why| ImageError {
        path: output.path().into(),
        why,
    };
    let chip = device.ftl().flash().model();
    let chip = chip.ok_or_else(|| fail(Why::NoChip))?;
    let contents = chip.contents();
    let payload = emit(&contents);
    let mut head = head_of(device.geometry(), setup);
    head.spare_kept = contents.spare_kept as u32;
    head.payload_bytes = payload.len() as u64;
    head.payload_sha256 = sha256(&payload);
    let head = serde_json::to_vec(&head).expect("a head is plain JSON");
    let mut file = Vec::new();
    file.extend_from_slice(MAGIC);
    file.extend_from_slice(&VERSION.to_le_bytes());
    file.extend_from_slice(&(head.len() as u32).to_le_bytes());
    file.extend_from_slice(&head);
    let written = |error| fail(Why::Io("written", error));
    zstd::stream::copy_encode(&payload[..], &mut file, 3).map_err(written)?;
    let saved = output.write(&file);
    saved.map_err(|error| fail(Why::Output(error.why)))?;
    Ok(file.len() as u64)
}

/// Starts a device from a file of [`save`]: the protocol recovers from the flash. `timing` and
/// `copy_back` may differ from those of the saved device; virtual time starts at zero.
///
/// # Errors
/// The file cannot be read, is not an image, is damaged, or is of another geometry or setup.
pub fn load(
    path: &Path,
    geometry: &Geometry,
    timing: Timing,
    copy_back: bool,
    setup: &Setup,
) -> Result<Device, ImageError> {
    let fail = |why| ImageError {
        path: path.into(),
        why,
    };
    let bytes = inputs::bytes(path).map_err(|error| fail(Why::Io("read", error)))?;
    let contents = read(&bytes, geometry, setup).map_err(fail)?;
    let chip = Chip::with_contents(*geometry, timing, contents);
    let mut chip = chip.map_err(|what| fail(Why::Damaged(what)))?;
    if copy_back {
        chip = chip.with_copy_back();
    }
    let Setup {
        kind,
        config,
        options,
    } = setup;
    Device::open(Box::new(chip), *kind, *config, options, Nanos::ZERO)
        .map_err(|error| fail(Why::Device(error)))
}

/// The contents of a file, if it is an image of such a device.
pub(crate) fn contents(bytes: &[u8], geometry: &Geometry, setup: &Setup) -> Option<Contents> {
    let contents = read(bytes, geometry, setup).ok()?;
    contents.check(geometry).ok()?;
    Some(contents)
}

/// Encodes a chip's contents as in a file, without compression and checksum.
#[doc(hidden)]
pub fn to_bytes(contents: &Contents) -> Vec<u8> {
    let mut bytes = (contents.spare_kept as u16).to_le_bytes().to_vec();
    bytes.extend_from_slice(&emit(contents));
    bytes
}

/// Decodes the result of [`to_bytes`] for a chip with `geometry`.
///
/// # Errors
/// Describes what is wrong with the bytes.
#[doc(hidden)]
pub fn from_bytes(bytes: &[u8], geometry: &Geometry) -> Result<Contents, String> {
    let fail = |why| ImageError {
        path: "the device".into(),
        why,
    };
    let mut rest = Cursor(bytes);
    let kept = rest
        .number(2)
        .map_err(fail)
        .map_err(|error| error.to_string())?;
    let contents = parse(rest.0, geometry, kept as usize).map_err(fail);
    let contents = contents.map_err(|error| error.to_string())?;
    contents.check(geometry)?;
    Ok(contents)
}

/// The protocol of the device in a file of [`save`].
///
/// # Errors
/// The file cannot be read, is not an image, or names an unknown protocol.
pub fn protocol(path: &Path) -> Result<Kind, ImageError> {
    let fail = |why| ImageError {
        path: path.into(),
        why,
    };
    let bytes = inputs::bytes(path).map_err(|error| fail(Why::Io("read", error)))?;
    let (head, _) = read_head(&bytes).map_err(fail)?;
    let unknown = || fail(Why::Damaged(format!("no protocol `{}`", head.protocol)));
    Kind::by_name(&head.protocol).ok_or_else(unknown)
}

/// The head of a file, and the bytes after it.
fn read_head(bytes: &[u8]) -> Result<(Head, &[u8]), Why> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return Err(if !bytes.is_empty() && MAGIC.starts_with(bytes) {
            Why::Truncated
        } else {
            Why::Foreign
        });
    };
    let mut rest = Cursor(rest);
    let version = rest.number(2)? as u16;
    if version != VERSION {
        return Err(Why::Version(version));
    }
    let len = rest.number(4)? as usize;
    if len > HEAD_MAX {
        return Err(Why::Damaged(format!("its head has {len} bytes")));
    }
    let head: Head = serde_json::from_slice(rest.take(len)?)
        .map_err(|error| Why::Damaged(format!("its head cannot be read: {error}")))?;
    Ok((head, rest.0))
}

/// The flash contents in an image, which must be of this geometry and setup.
fn read(bytes: &[u8], geometry: &Geometry, setup: &Setup) -> Result<Contents, Why> {
    let (head, rest) = read_head(bytes)?;
    compare(&head, geometry, setup)?;
    // A payload may claim to be larger than any memory: limit it to what the geometry can hold.
    let page = u64::from(geometry.page_bytes) + u64::from(geometry.spare_bytes) + 16;
    let most = geometry.pages() as u64 * page + u64::from(geometry.blocks()) * 16 + 1024;
    if head.payload_bytes > most {
        let bytes = head.payload_bytes;
        return Err(Why::Damaged(format!("its payload has {bytes} bytes")));
    }
    let mut payload = Vec::new();
    let unpacked = zstd::stream::Decoder::new(rest).and_then(|unpack| {
        unpack
            .take(head.payload_bytes.saturating_add(1))
            .read_to_end(&mut payload)
    });
    match unpacked {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            return Err(Why::Truncated);
        }
        Err(error) => return Err(Why::Damaged(error.to_string())),
        Ok(_) if (payload.len() as u64) < head.payload_bytes => return Err(Why::Truncated),
        Ok(_) => {}
    }
    if sha256(&payload) != head.payload_sha256 {
        return Err(Why::Damaged("its checksum is wrong".into()));
    }
    parse(&payload, geometry, head.spare_kept as usize)
}

/// Compares the file's head with the expected configuration.
fn compare(head: &Head, geometry: &Geometry, setup: &Setup) -> Result<(), Why> {
    let asked = head_of(geometry, setup);
    let numbers = |head: &Head| {
        [
            ("number of channels", head.channels),
            ("number of packages a channel", head.packages_per_channel),
            ("number of planes a package", head.planes_per_package),
            ("number of blocks a plane", head.blocks_per_plane),
            ("number of pages a block", head.pages_per_block),
            ("page size", head.page_bytes),
            ("spare area size", head.spare_bytes),
            (
                "cell type (partial programs, 0 for none)",
                head.partial_programs.unwrap_or(0).into(),
            ),
            ("program order", head.strict_order.into()),
        ]
    };
    for ((what, found), (_, asked)) in numbers(head).into_iter().zip(numbers(&asked)) {
        if found != asked {
            return Err(Why::Mismatch(what, found.to_string(), asked.to_string()));
        }
    }
    for (what, found, asked) in [
        ("pairing of pages", &head.pairing, &asked.pairing),
        ("protocol", &head.protocol, &asked.protocol),
        ("configuration", &head.config, &asked.config),
        ("variant of its protocol", &head.options, &asked.options),
    ] {
        if found != asked {
            return Err(Why::Mismatch(what, found.clone(), asked.clone()));
        }
    }
    Ok(())
}

/// The head for a configuration, without what depends on the contents.
fn head_of(geometry: &Geometry, setup: &Setup) -> Head {
    Head {
        channels: geometry.channels,
        packages_per_channel: geometry.packages_per_channel,
        planes_per_package: geometry.planes_per_package,
        blocks_per_plane: geometry.blocks_per_plane,
        pages_per_block: geometry.pages_per_block,
        page_bytes: geometry.page_bytes,
        spare_bytes: geometry.spare_bytes,
        partial_programs: match geometry.cell {
            Cell::Slc { partial_programs } => Some(partial_programs),
            Cell::Mlc => None,
        },
        strict_order: geometry.strict_order,
        pairing: match geometry.pairing {
            Pairing::None => String::new(),
            pairing => pairing.to_string(),
        },
        spare_kept: 0,
        protocol: setup.kind.info().name.into(),
        config: format!("{:?}", setup.config),
        options: format!("{:?}", setup.options),
        payload_bytes: 0,
        payload_sha256: String::new(),
    }
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Encodes the contents of a chip: tables of all pages and blocks, lists of bad blocks and damaged
/// pages, then each page that has data. All numbers are little-endian.
fn emit(contents: &Contents) -> Vec<u8> {
    let mut out = Vec::with_capacity(contents.programs.len() + contents.spare.len());
    out.extend_from_slice(&contents.programs);
    out.extend_from_slice(&contents.spare);
    let halves = |out: &mut Vec<u8>, list: &[u16]| {
        list.iter()
            .for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
    };
    halves(&mut out, &contents.summary);
    for count in &contents.erases {
        out.extend_from_slice(&count.to_le_bytes());
    }
    halves(&mut out, &contents.next_page);
    for list in [&contents.factory_bad, &contents.worn_out] {
        out.extend_from_slice(&(list.len() as u32).to_le_bytes());
        list.iter()
            .for_each(|block| out.extend_from_slice(&block.0.to_le_bytes()));
    }
    out.extend_from_slice(&(contents.damage.len() as u32).to_le_bytes());
    for (at, damage) in &contents.damage {
        out.extend_from_slice(&at.0.to_le_bytes());
        out.push(match damage {
            Damage::Unreadable => 1,
            Damage::Weak => 2,
        });
    }
    out.extend_from_slice(&(contents.data.len() as u32).to_le_bytes());
    for (at, data) in &contents.data {
        out.extend_from_slice(&at.0.to_le_bytes());
        out.extend_from_slice(&(data.len() as u32).to_le_bytes());
        out.extend_from_slice(data);
    }
    out
}

/// Decodes the result of [`emit`]. `spare_kept` is the number of bytes kept of each spare area.
fn parse(payload: &[u8], geometry: &Geometry, spare_kept: usize) -> Result<Contents, Why> {
    let (pages, blocks) = (geometry.pages() as usize, geometry.blocks() as usize);
    let mut rest = Cursor(payload);
    let mut contents = Contents {
        spare_kept,
        programs: rest.take(pages)?.to_vec(),
        spare: rest.take(pages.saturating_mul(spare_kept))?.to_vec(),
        ..Contents::default()
    };
    contents.summary = rest.numbers(blocks, 2)?.map(|n| n as u16).collect();
    contents.erases = rest.numbers(blocks, 4)?.map(|n| n as u32).collect();
    contents.next_page = rest.numbers(blocks, 2)?.map(|n| n as u16).collect();
    for list in [&mut contents.factory_bad, &mut contents.worn_out] {
        let count = rest.number(4)? as usize;
        *list = rest.numbers(count, 4)?.map(|n| Pbn(n as u32)).collect();
    }
    for _ in 0..rest.number(4)? {
        let at = Ppn(rest.number(4)? as u32);
        let damage = match rest.number(1)? {
            1 => Damage::Unreadable,
            2 => Damage::Weak,
            kind => return Err(Why::Damaged(format!("page {at} has damage {kind}"))),
        };
        contents.damage.push((at, damage));
    }
    for _ in 0..rest.number(4)? {
        let at = Ppn(rest.number(4)? as u32);
        let len = rest.number(4)? as usize;
        contents.data.push((at, rest.take(len)?.into()));
    }
    if rest.0.is_empty() {
        Ok(contents)
    } else {
        Err(Why::Damaged(format!(
            "{} bytes follow its end",
            rest.0.len()
        )))
    }
}

/// The remaining bytes.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Why> {
        let (head, tail) = self.0.split_at_checked(len).ok_or(Why::Truncated)?;
        self.0 = tail;
        Ok(head)
    }

    fn number(&mut self, bytes: usize) -> Result<u64, Why> {
        Ok(flagstone::layout::get(self.take(bytes)?, 0..bytes))
    }

    fn numbers(
        &mut self,
        count: usize,
        bytes: usize,
    ) -> Result<impl Iterator<Item = u64> + 'a, Why> {
        let all = self.take(count.checked_mul(bytes).ok_or(Why::Truncated)?)?;
        Ok(all
            .chunks_exact(bytes)
            .map(move |number| flagstone::layout::get(number, 0..bytes)))
    }
}
