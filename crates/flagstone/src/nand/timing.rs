//! How long operations take, and the timelines of the planes and channels that they occupy.
//!
//! A plane does one thing at a time, in the order in which it was asked; a channel carries the
//! bytes of one page at a time, or of its spare area alone where only that is read. Planes work
//! side by side. On a plane, an operation that is asked for later does not slip into a gap before
//! one that was asked for earlier. On a channel it does: a transfer that has to wait for its plane,
//! or for an instant to come, does not keep those of other planes from the wires.

use super::Geometry;
use crate::units::Nanos;

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

/// When each plane and each channel is free again.
#[derive(Debug, Clone)]
pub(super) struct Timelines {
    timing: Timing,
    page_transfer: Nanos,
    spare_transfer: Nanos,
    planes: Vec<Nanos>,
    channels: Vec<Channel>,
}

/// So many gaps of a channel are remembered; the oldest is forgotten first.
const GAPS: usize = 8;

/// When a channel is free.
#[derive(Debug, Clone, Default)]
struct Channel {
    /// For good, as far as is known.
    from: Nanos,
    /// Before that: from and until when, in order.
    gaps: Vec<(Nanos, Nanos)>,
}

impl Channel {
    /// Takes the first time of length `span` that begins at `ready` or later. Returns its end.
    #[inline]
    fn take(&mut self, ready: Nanos, span: Nanos) -> Nanos {
        if !self.gaps.is_empty()
            && let Some(end) = self.take_gap(ready, span)
        {
            return end;
        }
        if ready > self.from {
            if self.gaps.len() == GAPS {
                self.gaps.remove(0);
            }
            self.gaps.push((self.from, ready));
        }
        self.from = ready.max(self.from) + span;
        self.from
    }

    fn take_gap(&mut self, ready: Nanos, span: Nanos) -> Option<Nanos> {
        let fits = |&(from, to): &(Nanos, Nanos)| ready.max(from) + span <= to;
        let at = self.gaps.iter().position(fits)?;
        let (from, to) = self.gaps.remove(at);
        let end = ready.max(from) + span;
        for rest in [(end, to), (from, ready)] {
            if rest.0 < rest.1 && self.gaps.len() < GAPS {
                self.gaps.insert(at, rest);
            }
        }
        Some(end)
    }
}

impl Timelines {
    pub(super) fn new(geometry: &Geometry, timing: Timing) -> Self {
        let transfer = |bytes: u32| Nanos(u64::from(bytes) * timing.transfer_ps_per_byte / 1000);
        Timelines {
            timing,
            page_transfer: transfer(geometry.page_bytes + geometry.spare_bytes),
            spare_transfer: transfer(geometry.spare_bytes),
            planes: vec![Nanos::ZERO; geometry.planes() as usize],
            channels: vec![Channel::default(); geometry.channels as usize],
        }
    }

    #[inline]
    pub(super) fn read(
        &mut self,
        geometry: &Geometry,
        now: Nanos,
        plane: u32,
        spare_only: bool,
    ) -> Nanos {
        let mut done = self.occupy(now, plane, self.timing.read);
        let transfer = match spare_only {
            true => self.spare_transfer,
            false => self.page_transfer,
        };
        if transfer > Nanos::ZERO {
            let channel = &mut self.channels[geometry.channel_of(plane) as usize];
            done = channel.take(done, transfer);
            self.planes[plane as usize] = done;
        }
        done
    }

    #[inline]
    pub(super) fn program(&mut self, geometry: &Geometry, now: Nanos, plane: u32) -> Nanos {
        let mut start = now;
        if self.page_transfer > Nanos::ZERO {
            let channel = &mut self.channels[geometry.channel_of(plane) as usize];
            start = channel.take(now.max(self.planes[plane as usize]), self.page_transfer);
        }
        self.occupy(start, plane, self.timing.program)
    }

    #[inline]
    pub(super) fn reprogram(&mut self, now: Nanos, plane: u32) -> Nanos {
        self.occupy(now, plane, self.timing.reprogram)
    }

    #[inline]
    pub(super) fn erase(&mut self, now: Nanos, plane: u32) -> Nanos {
        self.occupy(now, plane, self.timing.erase)
    }

    pub(super) fn timing(&self) -> &Timing {
        &self.timing
    }

    pub(super) fn idle_at(&self) -> Nanos {
        self.planes.iter().copied().max().unwrap_or(Nanos::ZERO)
    }

    pub(super) fn reset(&mut self) {
        self.planes.fill(Nanos::ZERO);
        self.channels.fill(Channel::default());
    }

    #[inline]
    fn occupy(&mut self, now: Nanos, plane: u32, span: Nanos) -> Nanos {
        let free_at = &mut self.planes[plane as usize];
        *free_at = now.max(*free_at) + span;
        *free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_slips_into_a_gap_that_is_long_enough_and_nowhere_else() {
        let mut channel = Channel::default();
        let mut take = |ready| channel.take(Nanos(ready), Nanos(10)).0;
        assert_eq!(take(0), 10);
        // Wires are asked for from 100 on: those who come later and are ready earlier go first.
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
