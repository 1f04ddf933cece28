//! The ioctls of Linux's MTD character devices, as in `include/uapi/mtd/mtd-abi.h`.
//!
//! Only this file contains `unsafe` in this crate: the kernel gets addresses within records, for
//! which there is no safe wrapper. Each function passes the lengths of slices that it borrows
//! during the call. The kernel keeps no address.

use rustix::ioctl::{Getter, Opcode, Setter, Updater, ioctl, opcode};
use std::fs::File;
use std::io;

/// The ioctl group of MTD.
const GROUP: u8 = b'M';

/// The kernel places out-of-band bytes around the ECC bytes.
const AUTO_OOB: u8 = 1;

/// The properties of a device (`struct mtd_info_user`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Info {
    pub(super) kind: u8,
    pub(super) flags: u32,
    /// Size of the device modulo 4 GiB.
    size: u32,
    pub(super) erase_bytes: u32,
    pub(super) write_bytes: u32,
    pub(super) oob_bytes: u32,
    padding: u64,
}

/// `struct erase_info_user64`.
#[repr(C)]
struct Range {
    start: u64,
    length: u64,
}

/// `struct mtd_write_req`.
#[repr(C)]
struct WriteRequest {
    start: u64,
    len: u64,
    oob_len: u64,
    data: u64,
    oob: u64,
    mode: u8,
    padding: [u8; 7],
}

/// `struct mtd_read_req`.
#[repr(C)]
struct ReadRequest {
    start: u64,
    len: u64,
    oob_len: u64,
    data: u64,
    oob: u64,
    mode: u8,
    padding: [u8; 7],
    uncorrectable: u32,
    corrected: u32,
    most_in_one_step: u32,
}

/// ECC counters since the device was attached (`struct mtd_ecc_stats`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EccStats {
    /// Bits that were corrected.
    pub(super) corrected: u32,
    /// Reads with more errors than can be corrected.
    pub(super) failed: u32,
    bad_blocks: u32,
    table_blocks: u32,
}

/// The ECC result of a page read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ecc {
    /// Number of corrected bits in all ECC steps of the page.
    pub(super) corrected: u32,
    /// Whether the page has more errors than the ECC corrects.
    pub(super) is_lost: bool,
}

const MEMGETINFO: Opcode = opcode::read::<Info>(GROUP, 1);
const MEMGETBADBLOCK: Opcode = opcode::write::<i64>(GROUP, 11);
const MEMSETBADBLOCK: Opcode = opcode::write::<i64>(GROUP, 12);
const ECCGETSTATS: Opcode = opcode::read::<EccStats>(GROUP, 18);
const MEMERASE64: Opcode = opcode::write::<Range>(GROUP, 20);
const MEMWRITE: Opcode = opcode::read_write::<WriteRequest>(GROUP, 24);
const MEMREAD: Opcode = opcode::read_write::<ReadRequest>(GROUP, 26);

/// Reads the properties of the device.
pub(super) fn info(device: &File) -> io::Result<Info> {
    // SAFETY: MEMGETINFO fills a `struct mtd_info_user`, which `Info` is.
    Ok(unsafe { ioctl(device, Getter::<MEMGETINFO, Info>::new()) }?)
}

/// Reads the ECC counters of the device.
pub(super) fn ecc_stats(device: &File) -> io::Result<EccStats> {
    // SAFETY: ECCGETSTATS fills a `struct mtd_ecc_stats`, which `EccStats` is.
    Ok(unsafe { ioctl(device, Getter::<ECCGETSTATS, EccStats>::new()) }?)
}

/// An `ioctl` whose return value is needed. `Setter` drops it.
struct Asked<const OPCODE: Opcode>(i64);

// SAFETY: both ioctls that use this type read a 64-bit offset and write nothing.
unsafe impl<const OPCODE: Opcode> rustix::ioctl::Ioctl for Asked<OPCODE> {
    type Output = i32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        (&raw mut self.0).cast()
    }

    unsafe fn output_from_ptr(
        returned: rustix::ioctl::IoctlOutput,
        _: *mut std::ffi::c_void,
    ) -> rustix::io::Result<i32> {
        Ok(returned)
    }
}

/// Whether the block that begins at `start` is marked as bad.
pub(super) fn is_bad(device: &File, start: u64) -> io::Result<bool> {
    // SAFETY: MEMGETBADBLOCK reads an offset, and returns its result as the return value.
    Ok(unsafe { ioctl(device, Asked::<MEMGETBADBLOCK>(start as i64)) }? > 0)
}

/// Marks the block that begins at `start` as bad.
pub(super) fn mark_bad(device: &File, start: u64) -> io::Result<()> {
    // SAFETY: MEMSETBADBLOCK reads an offset.
    unsafe { ioctl(device, Asked::<MEMSETBADBLOCK>(start as i64)) }?;
    Ok(())
}

/// Erases `length` bytes from `start`.
pub(super) fn erase(device: &File, start: u64, length: u64) -> io::Result<()> {
    let range = Range { start, length };
    // SAFETY: MEMERASE64 reads a `struct erase_info_user64`, which `Range` is.
    Ok(unsafe { ioctl(device, Setter::<MEMERASE64, Range>::new(range)) }?)
}

/// Programs whole pages from `start`, with the ECC.
pub(super) fn program(device: &File, start: u64, data: &[u8]) -> io::Result<()> {
    let mut request = WriteRequest {
        start,
        len: data.len() as u64,
        oob_len: 0,
        data: data.as_ptr().addr() as u64,
        oob: 0,
        mode: AUTO_OOB,
        padding: [0; 7],
    };
    // SAFETY: MEMWRITE reads a `struct mtd_write_req`, and `len` bytes at `data`, which is borrowed
    // until the call returns.
    Ok(unsafe { ioctl(device, Updater::<MEMWRITE, WriteRequest>::new(&mut request)) }?)
}

/// Reads whole pages from `start` and returns the ECC result. Fails with `ENOTTY` on kernels before
/// 6.1.
pub(super) fn read(device: &File, start: u64, data: &mut [u8]) -> io::Result<Ecc> {
    let mut request = ReadRequest {
        start,
        len: data.len() as u64,
        oob_len: 0,
        data: data.as_mut_ptr().addr() as u64,
        oob: 0,
        mode: AUTO_OOB,
        padding: [0; 7],
        uncorrectable: 0,
        corrected: 0,
        most_in_one_step: 0,
    };
    // SAFETY: MEMREAD updates a `struct mtd_read_req`, and writes `len` bytes at `data`, which is
    // borrowed mutably until the call returns.
    let done = unsafe { ioctl(device, Updater::<MEMREAD, ReadRequest>::new(&mut request)) };
    match done {
        // The read corrected bits, or found too many errors. `request` has the counts.
        Ok(()) | Err(rustix::io::Errno::UCLEAN | rustix::io::Errno::BADMSG) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(Ecc {
        corrected: request.corrected,
        is_lost: request.uncorrectable > 0 || done == Err(rustix::io::Errno::BADMSG),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_the_calls_are_those_of_the_kernel() {
        // Printed by a C program that includes <mtd/mtd-abi.h>. The numbers contain the sizes of
        // the records.
        let numbers = [
            (MEMGETINFO, 0x8020_4d01),
            (MEMGETBADBLOCK, 0x4008_4d0b),
            (MEMSETBADBLOCK, 0x4008_4d0c),
            (ECCGETSTATS, 0x8010_4d12),
            (MEMERASE64, 0x4010_4d14),
            (MEMWRITE, 0xc030_4d18),
            (MEMREAD, 0xc040_4d1a),
        ];
        for (ours, theirs) in numbers {
            assert_eq!(ours, theirs, "{theirs:#x}");
        }
    }
}
