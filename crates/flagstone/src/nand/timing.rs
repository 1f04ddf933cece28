//! Latencies of operations, and the timelines of the planes and channels that they occupy.
//!
//! Planes work concurrently, and each does one operation at a time. An operation begins at the
//! first instant at which it is ready and its plane is free for its whole duration, in whatever
//! order operations are called: an earlier chain of operations does not keep its planes busy while
//! it waits. A plane is occupied from the first byte of a transfer in to the end of the program,
//! and from the begin of a read to the last byte out. A channel transfers the bytes of one page at
//! a time, or of a spare area if only that is read.
//!
//! Changes of a block stay in order, a page is read after it was programmed, and a block is erased
//! after everything else that was called for it. A scheduled operation is never moved, so its end
//! is known when it is called. An operation that is called later and ready earlier can therefore
//! wait for one that a controller with a queue would put behind it. But no plane is idle long
//! enough for an operation that waits for it.

use super::Geometry;
use super::timeline::Timeline;
use crate::units::{Nanos, Pbn, Ppn};

/// Latencies of one device.
///
/// ```
/// use flagstone::nand::{Busy, Chip, Flash, FlashError, Geometry, Timing};
/// use flagstone::units::{Nanos, Ppn};
///
/// let timing = Timing {
///     program: Nanos::from_micros(660),
///     transfer_ps_per_byte: 2_500,
///     ..Timing::default()
/// };
/// let mut chip = Chip::new(Geometry::default(), timing, 64);
/// let done = chip.program(Nanos::ZERO, Ppn(0), b"data", &[])?;
///
/// // The bytes of the page and of its spare area are transferred, then the page is programmed.
/// let channels = timing.transfer(4096 + 128);
/// assert_eq!(done, channels + timing.program);
/// assert_eq!(chip.busy(), Busy { planes: done, channels });
/// # Ok::<(), FlashError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Cells to page register.
    pub read: Nanos,
    /// Page register to cells.
    pub program: Nanos,
    /// A partial program of the spare area.
    pub reprogram: Nanos,
    /// A block erase.
    pub erase: Nanos,
    /// Transfer time of a byte between controller and package, in picoseconds; 0: no transfers.
    pub transfer_ps_per_byte: u64,
}

impl Default for Timing {
    /// Single-level cells, with transfers that take no time.
    fn default() -> Self {
        Timing {
            read: Nanos::from_micros(25),
            program: Nanos::from_micros(200),
            reprogram: Nanos::from_micros(200),
            erase: Nanos::from_micros(1500),
            transfer_ps_per_byte: 0,
        }
    }
}

impl Timing {
    /// Transfer time of `bytes` bytes.
    pub fn transfer(&self, bytes: u32) -> Nanos {
        Nanos(u64::from(bytes) * self.transfer_ps_per_byte / 1000)
    }
}

/// When the last change of a block ends, and when all operations called for it have ended.
#[derive(Debug, Clone, Copy, Default)]
struct Block {
    changed: Nanos,
    used: Nanos,
}

/// The reservations of each plane and each channel.
#[derive(Debug, Clone)]
pub(super) struct Timelines {
    timing: Timing,
    /// Transfer times of a page and of a spare area: as configured, and as used now.
    transfers: [Nanos; 2],
    page_transfer: Nanos,
    spare_transfer: Nanos,
    planes: Vec<Timeline>,
    channels: Vec<Timeline>,
    /// The shortest operation of a plane, and the shortest transfer.
    shortest: Nanos,
    shortest_transfer: Nanos,
    blocks: Vec<Block>,
    /// When the last program of each page is done.
    programmed: Vec<Nanos>,
    /// No operation will be ready before this instant.
    present: Nanos,
}

impl Timelines {
    /// The timelines of a device that is idle.
    pub(super) fn new(geometry: &Geometry, timing: Timing) -> Self {
        let transfers = [
            timing.transfer(geometry.page_bytes + geometry.spare_bytes),
            timing.transfer(geometry.spare_bytes),
        ];
        let operations = [timing.read, timing.program, timing.reprogram, timing.erase];
        let blocks = geometry.blocks() as usize;
        Timelines {
            timing,
            transfers,
            page_transfer: transfers[0],
            spare_transfer: transfers[1],
            planes: vec![Timeline::default(); geometry.planes() as usize],
            channels: vec![Timeline::default(); geometry.channels as usize],
            shortest: operations.into_iter().min().unwrap_or_default(),
            shortest_transfer: transfers[1],
            blocks: vec![Block::default(); blocks],
            programmed: vec![Nanos::ZERO; geometry.pages() as usize],
            present: Nanos::ZERO,
        }
    }

    /// Sets whether operations stay inside their planes, without transfers.
    pub(super) fn inside(&mut self, inside: bool) {
        [self.page_transfer, self.spare_transfer] = if inside {
            [Nanos::ZERO; 2]
        } else {
            self.transfers
        };
    }

    /// Schedules a read of a page, or of its spare area only, that is ready at `now`. It begins
    /// after the last program of the page. Returns when it is done.
    #[inline]
    pub(super) fn read(
        &mut self,
        geometry: &Geometry,
        now: Nanos,
        plane: u32,
        block: Pbn,
        at: Ppn,
        spare_only: bool,
    ) -> Nanos {
        // Try the block first: it is needed anyway; entries of pages are far apart in memory.
        let now = if self.blocks[block.index()].changed > now {
            now.max(self.programmed[at.index()])
        } else {
            now
        };
        let transfer = if spare_only {
            self.spare_transfer
        } else {
            self.page_transfer
        };
        let done = if transfer == Nanos::ZERO {
            self.in_plane(plane, now, self.timing.read)
        } else {
            self.read_out(geometry, now, plane, transfer)
        };
        let used = &mut self.blocks[block.index()].used;
        *used = done.max(*used);
        done
    }

    /// A read with transfer: the plane holds the bytes until the channel has taken the last.
    fn read_out(&mut self, geometry: &Geometry, now: Nanos, plane: u32, transfer: Nanos) -> Nanos {
        let channel = &mut self.channels[geometry.channel_of(plane) as usize];
        let plane = &mut self.planes[plane as usize];
        channel.reached(self.present);
        plane.reached(self.present);
        let mut ready = now;
        loop {
            let place = plane.first_fit(ready, self.timing.read + transfer);
            let out = channel.first_fit(place.start + self.timing.read, transfer);
            let done = out.start + transfer;
            if done <= place.until {
                plane.reserve(place, done, self.shortest);
                channel.reserve(out, done, self.shortest_transfer);
                return done;
            }
            // The channel is busy until the free time of the plane is over: the next free time.
            ready = place.until;
        }
    }

    /// Schedules a program that is ready at `now`. It begins after all earlier changes of the
    /// block. Returns when it is done.
    #[inline]
    pub(super) fn program(
        &mut self,
        geometry: &Geometry,
        now: Nanos,
        plane: u32,
        block: Pbn,
        at: Ppn,
    ) -> Nanos {
        let now = now.max(self.blocks[block.index()].changed);
        let done = if self.page_transfer == Nanos::ZERO {
            self.in_plane(plane, now, self.timing.program)
        } else {
            self.program_in(geometry, now, plane)
        };
        self.programmed[at.index()] = done;
        self.change(block, done)
    }

    /// A program whose data is transferred over the channel.
    fn program_in(&mut self, geometry: &Geometry, now: Nanos, plane: u32) -> Nanos {
        let channel = &mut self.channels[geometry.channel_of(plane) as usize];
        let plane = &mut self.planes[plane as usize];
        channel.reached(self.present);
        plane.reached(self.present);
        let span = self.page_transfer + self.timing.program;
        let mut ready = now;
        loop {
            let place = plane.first_fit(ready, span);
            let into = channel.first_fit(place.start, self.page_transfer);
            if into.start == place.start {
                plane.reserve(place, place.start + span, self.shortest);
                channel.reserve(
                    into,
                    into.start + self.page_transfer,
                    self.shortest_transfer,
                );
                return place.start + span;
            }
            // The channel is busy when the plane is free: when the channel is free.
            ready = into.start;
        }
    }

    #[inline]
    pub(super) fn reprogram(&mut self, now: Nanos, plane: u32, block: Pbn, at: Ppn) -> Nanos {
        let now = now.max(self.blocks[block.index()].changed);
        let done = self.in_plane(plane, now, self.timing.reprogram);
        self.programmed[at.index()] = done;
        self.change(block, done)
    }

    #[inline]
    pub(super) fn erase(&mut self, now: Nanos, plane: u32, block: Pbn) -> Nanos {
        let now = now.max(self.blocks[block.index()].used);
        let done = self.in_plane(plane, now, self.timing.erase);
        self.change(block, done)
    }

    /// An operation of a plane without a transfer.
    #[inline]
    fn in_plane(&mut self, plane: u32, now: Nanos, span: Nanos) -> Nanos {
        let plane = &mut self.planes[plane as usize];
        plane.reached(self.present);
        plane.take(now, span, self.shortest)
    }

    #[inline]
    fn change(&mut self, block: Pbn, done: Nanos) -> Nanos {
        let block = &mut self.blocks[block.index()];
        block.changed = done;
        block.used = done.max(block.used);
        done
    }

    pub(super) fn timing(&self) -> &Timing {
        &self.timing
    }

    /// Announces that no operation will be ready before this instant.
    pub(super) fn reached(&mut self, now: Nanos) {
        self.present = now.max(self.present);
    }

    /// Time for which planes and channels were occupied.
    pub(super) fn busy(&self) -> Busy {
        let sum = |lines: &[Timeline]| Nanos(lines.iter().map(|line| line.busy().0).sum());
        Busy {
            planes: sum(&self.planes),
            channels: sum(&self.channels),
        }
    }

    pub(super) fn reset(&mut self) {
        self.planes.fill(Timeline::default());
        self.channels.fill(Timeline::default());
        self.blocks.fill(Block::default());
        self.programmed.fill(Nanos::ZERO);
        self.present = Nanos::ZERO;
    }
}

/// Time for which planes and channels were occupied since the start, summed over all planes and
/// over all channels. A plane that holds a page and waits for its channel is occupied.
///
/// Example: [`Timing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Busy {
    /// All planes together.
    pub planes: Nanos,
    /// All channels together.
    pub channels: Nanos,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device of one plane.
    fn plane(blocks_per_plane: u32, page_bytes: u32) -> Geometry {
        Geometry {
            channels: 1,
            packages_per_channel: 1,
            planes_per_package: 1,
            blocks_per_plane,
            pages_per_block: 1,
            page_bytes,
            spare_bytes: 0,
            cell: crate::nand::Cell::Mlc,
            strict_order: false,
            pairing: crate::nand::Pairing::None,
        }
    }

    fn latencies(transfer_ps_per_byte: u64) -> Timing {
        Timing {
            read: Nanos(1),
            program: Nanos(2),
            reprogram: Nanos(3),
            erase: Nanos(4),
            transfer_ps_per_byte,
        }
    }

    #[test]
    fn a_plane_goes_on_before_what_it_must_wait_for() {
        let geometry = plane(5, 0);
        let mut time = Timelines::new(&geometry, latencies(0));
        // No other operation fits before 10; the erase does not fit after the others.
        assert_eq!(time.program(&geometry, Nanos(10), 0, Pbn(0), Ppn(0)).0, 12);
        assert_eq!(
            time.read(&geometry, Nanos(0), 0, Pbn(4), Ppn(4), false).0,
            1
        );
        assert_eq!(time.program(&geometry, Nanos(0), 0, Pbn(1), Ppn(1)).0, 3);
        assert_eq!(time.reprogram(Nanos(0), 0, Pbn(2), Ppn(2)).0, 6);
        assert_eq!(time.erase(Nanos(8), 0, Pbn(3)).0, 16);
        // A changed block: not before the change is done, although there is a gap.
        assert_eq!(time.program(&geometry, Nanos(0), 0, Pbn(3), Ppn(3)).0, 18);
        assert_eq!(time.program(&geometry, Nanos(0), 0, Pbn(1), Ppn(1)).0, 8);
        assert_eq!(time.busy().planes.0, 2 + 1 + 2 + 3 + 4 + 2 + 2);
    }

    #[test]
    fn a_block_is_erased_after_the_reads_that_were_called_before() {
        let geometry = plane(2, 0);
        let mut time = Timelines::new(&geometry, latencies(0));
        assert_eq!(
            time.read(&geometry, Nanos(20), 0, Pbn(0), Ppn(0), false).0,
            21
        );
        // A program may precede the read of another page of its block; an erase may not.
        assert_eq!(time.program(&geometry, Nanos(0), 0, Pbn(0), Ppn(0)).0, 2);
        assert_eq!(time.erase(Nanos(0), 0, Pbn(1)).0, 6);
        assert_eq!(time.erase(Nanos(0), 0, Pbn(0)).0, 25);
    }

    #[test]
    fn a_plane_holds_a_page_until_the_channel_has_taken_it() {
        // Two planes of one channel.
        let geometry = Geometry {
            planes_per_package: 2,
            pages_per_block: 2,
            ..plane(1, 10)
        };
        let mut time = Timelines::new(&geometry, latencies(1_000));
        assert_eq!(
            time.read(&geometry, Nanos(0), 0, Pbn(0), Ppn(0), false).0,
            1 + 10
        );
        // The bytes wait for the channel, and the plane waits with them.
        assert_eq!(
            time.read(&geometry, Nanos(0), 1, Pbn(1), Ppn(1), false).0,
            11 + 10
        );
        assert_eq!(
            time.busy(),
            Busy {
                planes: Nanos(11 + 21),
                channels: Nanos(20)
            }
        );
        // A program of the first plane needs the channel, and occupies the plane only from then on.
        assert_eq!(
            time.program(&geometry, Nanos(0), 0, Pbn(0), Ppn(0)).0,
            21 + 10 + 2
        );
        assert_eq!(time.reprogram(Nanos(0), 0, Pbn(0), Ppn(0)).0, 33 + 3);
        assert_eq!(time.erase(Nanos(11), 1, Pbn(1)).0, 21 + 4);
        // A page does not fit the first plane's gap from 11 on: the channel is busy.
        assert_eq!(
            time.read(&geometry, Nanos(11), 0, Pbn(0), Ppn(1), true).0,
            12
        );
        assert_eq!(
            time.read(&geometry, Nanos(11), 0, Pbn(0), Ppn(1), false).0,
            36 + 1 + 10
        );
        // A page is read only after it was programmed.
        assert_eq!(
            time.read(&geometry, Nanos(12), 0, Pbn(0), Ppn(0), true).0,
            48
        );
    }

    #[test]
    fn what_stays_inside_a_plane_is_not_transferred() {
        let geometry = plane(1, 10);
        let mut time = Timelines::new(&geometry, latencies(10_000));
        let mut copy = |inside, now| {
            time.inside(inside);
            let read = time.read(&geometry, Nanos(now), 0, Pbn(0), Ppn(0), false);
            time.program(&geometry, read, 0, Pbn(0), Ppn(0)).0 - now
        };
        assert_eq!(copy(false, 0), 1 + 100 + 100 + 2);
        assert_eq!(copy(true, 1_000), 1 + 2);
        assert_eq!(copy(false, 2_000), 1 + 100 + 100 + 2);
    }
}
