//! How long operations take, and the timelines of the planes and channels that they occupy.
//!
//! A plane does one thing at a time, in the order in which it was asked; a channel carries the
//! bytes of one page at a time, or of its spare area alone where only that is read. Planes work
//! side by side. An operation that is asked for later does not slip into a gap before one that was
//! asked for earlier.

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
    channels: Vec<Nanos>,
}

impl Timelines {
    pub(super) fn new(geometry: &Geometry, timing: Timing) -> Self {
        let transfer = |bytes: u32| Nanos(u64::from(bytes) * timing.transfer_ps_per_byte / 1000);
        Timelines {
            timing,
            page_transfer: transfer(geometry.page_bytes + geometry.spare_bytes),
            spare_transfer: transfer(geometry.spare_bytes),
            planes: vec![Nanos::ZERO; geometry.planes() as usize],
            channels: vec![Nanos::ZERO; geometry.channels as usize],
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
            done = done.max(*channel) + transfer;
            *channel = done;
            self.planes[plane as usize] = done;
        }
        done
    }

    #[inline]
    pub(super) fn program(&mut self, geometry: &Geometry, now: Nanos, plane: u32) -> Nanos {
        let mut start = now;
        if self.page_transfer > Nanos::ZERO {
            let channel = &mut self.channels[geometry.channel_of(plane) as usize];
            start = now.max(*channel).max(self.planes[plane as usize]) + self.page_transfer;
            *channel = start;
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
        self.channels.fill(Nanos::ZERO);
    }

    #[inline]
    fn occupy(&mut self, now: Nanos, plane: u32, span: Nanos) -> Nanos {
        let free_at = &mut self.planes[plane as usize];
        *free_at = now.max(*free_at) + span;
        *free_at
    }
}
