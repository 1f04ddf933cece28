//! How long operations take, and the timelines of the planes and channels that they occupy.
//!
//! Planes work side by side. A plane does one operation at a time, in the order in which operations
//! were issued. It does not move an operation into a gap before an earlier one. A channel carries
//! the bytes of one page at a time, or of a spare area where only that is read. A channel does fill
//! its gaps: a transfer that has to wait for its plane, or for a later instant, leaves the wires to
//! other planes. On a device with [`Chip::with_filled_gaps`](super::Chip) planes fill their gaps as
//! well. Changes of one block stay in order even then. A read may be scheduled before the program
//! that produces its data: the controller has the data in memory until that program is done.

use super::Geometry;
use crate::units::{Nanos, Pbn};

/// Latencies of one device.
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
    /// Bus time of one byte between controller and package, in picoseconds; 0 leaves transfers out.
    pub transfer_ps_per_byte: u64,
}

impl Default for Timing {
    /// A single-level part whose transfers take no time.
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
    /// Bus time of so many bytes.
    pub fn transfer(&self, bytes: u32) -> Nanos {
        Nanos(u64::from(bytes) * self.transfer_ps_per_byte / 1000)
    }
}

/// When each plane and each channel is free again.
#[derive(Debug, Clone)]
pub(super) struct Timelines {
    timing: Timing,
    /// Time to transfer a page, and a spare area alone: by the timing, and as it is at present.
    transfers: [Nanos; 2],
    page_transfer: Nanos,
    spare_transfer: Nanos,
    planes: Vec<Nanos>,
    channels: Vec<Channel>,
    /// Idle times of each plane before operations that it was given, if gaps are used.
    gaps: Option<Vec<Gaps>>,
    /// When each block's last change is done, if gaps are used.
    changed: Vec<Nanos>,
}

/// So many gaps are remembered; the oldest is forgotten first.
const GAPS: usize = 8;

/// Idle times before busy ones: from and until when, in order.
#[derive(Debug, Clone, Default)]
struct Gaps(Vec<(Nanos, Nanos)>);

/// When a channel is free.
#[derive(Debug, Clone, Default)]
struct Channel {
    /// The channel is free from then on.
    from: Nanos,
    /// Idle times before that.
    gaps: Gaps,
}

impl Channel {
    /// Takes the first time of length `span` that begins at `ready` or later. Returns its end.
    #[inline]
    fn take(&mut self, ready: Nanos, span: Nanos) -> Nanos {
        if let Some(end) = self.gaps.take(ready, span) {
            return end;
        }
        self.gaps.add(self.from, ready);
        self.from = ready.max(self.from) + span;
        self.from
    }
}

impl Gaps {
    fn add(&mut self, from: Nanos, to: Nanos) {
        if from < to {
            if self.0.len() == GAPS {
                self.0.remove(0);
            }
            self.0.push((from, to));
        }
    }

    /// Takes the first time of length `span` that begins at `ready` or later. Returns its end.
    #[inline]
    fn take(&mut self, ready: Nanos, span: Nanos) -> Option<Nanos> {
        let fits = |&(from, to): &(Nanos, Nanos)| ready.max(from) + span <= to;
        let at = self.0.iter().position(fits)?;
        let (from, to) = self.0.remove(at);
        let end = ready.max(from) + span;
        for rest in [(end, to), (from, ready)] {
            if rest.0 < rest.1 && self.0.len() < GAPS {
                self.0.insert(at, rest);
            }
        }
        Some(end)
    }
}

impl Timelines {
    pub(super) fn new(geometry: &Geometry, timing: Timing) -> Self {
        let transfers = [
            timing.transfer(geometry.page_bytes + geometry.spare_bytes),
            timing.transfer(geometry.spare_bytes),
        ];
        Timelines {
            timing,
            transfers,
            page_transfer: transfers[0],
            spare_transfer: transfers[1],
            planes: vec![Nanos::ZERO; geometry.planes() as usize],
            channels: vec![Channel::default(); geometry.channels as usize],
            gaps: None,
            changed: Vec::new(),
        }
    }

    /// From here on operations stay inside their planes and transfer nothing, or no longer.
    pub(super) fn inside(&mut self, inside: bool) {
        [self.page_transfer, self.spare_transfer] = match inside {
            true => [Nanos::ZERO; 2],
            false => self.transfers,
        };
    }

    /// Gaps are used from here on. Each plane has a channel to itself.
    pub(super) fn fill_gaps(&mut self, geometry: &Geometry) {
        assert_eq!(self.planes.len(), self.channels.len());
        self.gaps = Some(vec![Gaps::default(); self.planes.len()]);
        self.changed = vec![Nanos::ZERO; geometry.blocks() as usize];
    }

    #[inline]
    pub(super) fn read(
        &mut self,
        geometry: &Geometry,
        now: Nanos,
        plane: u32,
        spare_only: bool,
    ) -> Nanos {
        let transfer = match spare_only {
            true => self.spare_transfer,
            false => self.page_transfer,
        };
        if let Some(done) = self.take_gap(now, plane, self.timing.read + transfer) {
            return done;
        }
        let mut done = self.occupy(now, plane, self.timing.read);
        if transfer > Nanos::ZERO {
            let channel = &mut self.channels[geometry.channel_of(plane) as usize];
            done = channel.take(done, transfer);
            self.planes[plane as usize] = done;
        }
        done
    }

    #[inline]
    pub(super) fn program(
        &mut self,
        geometry: &Geometry,
        now: Nanos,
        plane: u32,
        block: Pbn,
    ) -> Nanos {
        let now = self.after_changes(block, now);
        let filled = self.take_gap(now, plane, self.page_transfer + self.timing.program);
        let done = filled.unwrap_or_else(|| {
            let mut start = now;
            if self.page_transfer > Nanos::ZERO {
                let ready = now.max(self.planes[plane as usize]);
                let channel = &mut self.channels[geometry.channel_of(plane) as usize];
                start = channel.take(ready, self.page_transfer);
                self.leave_gap(plane, Nanos(start.0 - self.page_transfer.0));
                self.planes[plane as usize] = start;
            }
            self.occupy(start, plane, self.timing.program)
        });
        self.change(block, done)
    }

    #[inline]
    pub(super) fn reprogram(&mut self, geometry: &Geometry, now: Nanos, block: Pbn) -> Nanos {
        self.in_plane(geometry, now, block, self.timing.reprogram)
    }

    #[inline]
    pub(super) fn erase(&mut self, geometry: &Geometry, now: Nanos, block: Pbn) -> Nanos {
        self.in_plane(geometry, now, block, self.timing.erase)
    }

    /// A change of a block that needs no transfer.
    #[inline]
    fn in_plane(&mut self, geometry: &Geometry, now: Nanos, block: Pbn, span: Nanos) -> Nanos {
        let plane = geometry.plane_of(block);
        let now = self.after_changes(block, now);
        let filled = self.take_gap(now, plane, span);
        let done = filled.unwrap_or_else(|| self.occupy(now, plane, span));
        self.change(block, done)
    }

    /// From when on a block can be changed.
    #[inline]
    fn after_changes(&self, block: Pbn, now: Nanos) -> Nanos {
        let changed = self.changed.get(block.index());
        changed.map_or(now, |&changed| changed.max(now))
    }

    #[inline]
    fn change(&mut self, block: Pbn, done: Nanos) -> Nanos {
        if let Some(changed) = self.changed.get_mut(block.index()) {
            *changed = done;
        }
        done
    }

    pub(super) fn timing(&self) -> &Timing {
        &self.timing
    }

    pub(super) fn reset(&mut self) {
        self.planes.fill(Nanos::ZERO);
        self.channels.fill(Channel::default());
        if let Some(gaps) = &mut self.gaps {
            gaps.fill(Gaps::default());
        }
        self.changed.fill(Nanos::ZERO);
    }

    /// Makes an operation in a gap of its plane. Returns its end, or nothing if it fits in none.
    #[inline]
    fn take_gap(&mut self, now: Nanos, plane: u32, span: Nanos) -> Option<Nanos> {
        self.gaps.as_mut()?[plane as usize].take(now, span)
    }

    /// Notes that the plane is idle until `start`, when its next operation begins.
    #[inline]
    fn leave_gap(&mut self, plane: u32, start: Nanos) {
        if let Some(gaps) = &mut self.gaps {
            gaps[plane as usize].add(self.planes[plane as usize], start);
        }
    }

    #[inline]
    fn occupy(&mut self, now: Nanos, plane: u32, span: Nanos) -> Nanos {
        self.leave_gap(plane, now);
        let free_at = &mut self.planes[plane as usize];
        *free_at = now.max(*free_at) + span;
        *free_at
    }
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
    fn an_operation_is_made_in_a_gap_that_is_long_enough_and_nowhere_else() {
        let mut gaps = Gaps::default();
        gaps.add(Nanos(0), Nanos(100));
        gaps.add(Nanos(150), Nanos(150));
        gaps.add(Nanos(200), Nanos(215));
        let mut take = |ready, span| gaps.take(Nanos(ready), Nanos(span)).map(|end| end.0);
        assert_eq!(take(40, 50), Some(90));
        assert_eq!(take(0, 30), Some(30));
        assert_eq!(take(0, 20), None);
        assert_eq!(take(0, 10), Some(40));
        assert_eq!(take(0, 10), Some(100));
        assert_eq!(take(206, 10), None);
        assert_eq!(take(0, 15), Some(215));
        assert_eq!(take(0, 1), None);
    }

    #[test]
    fn a_plane_with_filled_gaps_goes_on_before_what_it_must_wait_for() {
        let geometry = plane(5, 0);
        let done = |fills: bool| {
            let mut time = Timelines::new(&geometry, latencies(0));
            if fills {
                time.fill_gaps(&geometry);
            }
            // Nothing else can be done before 10; the erase does not fit behind the others.
            let first = time.program(&geometry, Nanos(10), 0, Pbn(0));
            let read = time.read(&geometry, Nanos(0), 0, false);
            let program = time.program(&geometry, Nanos(0), 0, Pbn(1));
            let reprogram = time.reprogram(&geometry, Nanos(0), Pbn(2));
            let erase = time.erase(&geometry, Nanos(8), Pbn(3));
            // Blocks that were changed: not before that is done, though there is a gap.
            let after_erase = time.program(&geometry, Nanos(0), 0, Pbn(3));
            let after_program = time.program(&geometry, Nanos(0), 0, Pbn(1));
            [
                first,
                read,
                program,
                reprogram,
                erase,
                after_erase,
                after_program,
            ]
            .map(|at| at.0)
        };
        assert_eq!(done(false), [12, 13, 15, 18, 22, 24, 26]);
        assert_eq!(done(true), [12, 1, 3, 6, 16, 18, 8]);
    }

    #[test]
    fn what_stays_inside_a_plane_is_not_transferred() {
        let geometry = plane(1, 10);
        let mut time = Timelines::new(&geometry, latencies(10_000));
        let mut copy = |inside, now| {
            time.inside(inside);
            let read = time.read(&geometry, Nanos(now), 0, false);
            time.program(&geometry, read, 0, Pbn(0)).0 - now
        };
        assert_eq!(copy(false, 0), 1 + 100 + 100 + 2);
        assert_eq!(copy(true, 1_000), 1 + 2);
        assert_eq!(copy(false, 2_000), 1 + 100 + 100 + 2);
    }

    #[test]
    fn a_transfer_slips_into_a_gap_that_is_long_enough_and_nowhere_else() {
        let mut channel = Channel::default();
        let mut take = |ready| channel.take(Nanos(ready), Nanos(10)).0;
        assert_eq!(take(0), 10);
        // Wires are asked for from 100 on: transfers that come later and are ready earlier go
        // first.
        assert_eq!(take(100), 110);
        assert_eq!(take(5), 20);
        assert_eq!(take(50), 60);
        assert_eq!(take(45), 70);
        assert_eq!(take(91), 120);
        assert_eq!(take(20), 30);
        assert_eq!(take(0), 40);
        assert_eq!(take(0), 50);
        assert_eq!(take(0), 80);
        assert_eq!(take(0), 90);
        assert_eq!(take(0), 100);
        assert_eq!(take(0), 130);
    }
}
