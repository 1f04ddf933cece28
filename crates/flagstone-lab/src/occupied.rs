//! How long planes and channels were occupied during the measured window of a run, by cause.
//!
//! The time of all planes together consists of work for the host, for the collection, and for the
//! protocol, time holding a page that waited for its channel, and idle time. So the difference
//! between two runs is the difference of these five.

use crate::device::DeviceSpec;
use flagstone::ftl::{Cause, Stats};
use flagstone::nand::Busy;
use flagstone::units::Nanos;
use serde::Serialize;

/// Use of planes and channels in the measured window. Times are summed over all planes. Work that
/// is issued in the window and completes later counts as well.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Occupied {
    /// Fraction of the window in which planes were occupied, averaged over all planes.
    pub planes: f64,
    /// Like `planes`, for channels.
    pub channels: f64,
    /// Page reads and writes of the host.
    pub host_ns: u64,
    /// Collection, scrubbing, and erases before the first use of a block.
    pub collection_ns: u64,
    /// Reads and programs for commits, mapping and logs.
    pub protocol_ns: u64,
    /// Waits of planes with a page for their channel.
    pub held_ns: u64,
    /// Idle time.
    pub idle_ns: u64,
}

impl Occupied {
    /// The percentage of the time of all planes that a part takes.
    pub fn share(&self, part: fn(&Occupied) -> u64) -> f64 {
        let done = self.host_ns + self.collection_ns + self.protocol_ns;
        let all = done + self.held_ns + self.idle_ns;
        100.0 * part(self) as f64 / all.max(1) as f64
    }

    /// Computes the use from the chip's counters before and after a window, and the FTL's counts
    /// within it.
    pub(crate) fn within(
        window: Nanos,
        [before, after]: [Busy; 2],
        counted: &Stats,
        device: &DeviceSpec,
    ) -> Occupied {
        let geometry = &device.geometry;
        let of = |causes: &[Cause]| -> u64 {
            let each = causes.iter();
            each.map(|&cause| counted.busy(cause, &device.timing, geometry).0)
                .sum()
        };
        let host_ns = of(&[Cause::Host]);
        let collection_ns = of(&[Cause::Gc, Cause::Scrub]);
        let protocol_ns = of(&[Cause::Commit, Cause::Mapping, Cause::Log]);
        let planes = after.planes.since(before.planes).0;
        let channels = after.channels.since(before.channels).0;
        let done = host_ns + collection_ns + protocol_ns;
        debug_assert!(planes >= done, "each operation takes its time of a plane");
        let all = window.0 * u64::from(geometry.planes());
        let of_channels = window.0 * u64::from(geometry.channels);
        Occupied {
            planes: planes as f64 / all.max(1) as f64,
            channels: channels as f64 / of_channels.max(1) as f64,
            host_ns,
            collection_ns,
            protocol_ns,
            held_ns: planes.saturating_sub(done),
            idle_ns: all.saturating_sub(planes),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::device::presets;
    use crate::replay::{InputName, Setup, Terms, script_of};
    use crate::workload::{Drawn, Pattern};
    use flagstone::commit::{Kind, Options};

    /// The time of planes is completely accounted for; if no channel is shared, none is waited for.
    #[test]
    fn the_time_of_planes_is_what_was_done_in_it() {
        let small = presets().iter().find(|device| device.name == "small");
        let mut device = small.expect("a preset").clone();
        device.geometry.planes_per_package = 1;
        device.geometry.blocks_per_plane = 64;
        device.config.over_provision = 0.3;
        let source = InputName {
            name: "uniform".into(),
            sha256: None,
        };
        for (channels, packages, transfer) in [(4, 1, 0), (4, 1, 25_000), (2, 2, 25_000)] {
            device.geometry.channels = channels;
            device.geometry.packages_per_channel = packages;
            device.geometry.packages_per_channel = packages;
            device.timing.transfer_ps_per_byte = transfer;
            for kind in Kind::ALL {
                let setup = Setup {
                    kind: *kind,
                    options: Options::default(),
                    device: device.clone(),
                    isolation: None,
                    terms: Terms {
                        clients: 8,
                        speedup: None,
                        abort_ratio: 0.1,
                        recorded_aborts: true,
                        fill: 0.5,
                        overwrite: true,
                        seed: 1,
                    },
                };
                let pages = setup.capacity().expect("room");
                let drawn = Drawn {
                    requests: Some(4_000),
                    read_share: Some(0.3),
                    pages_per_transaction: Some(4),
                };
                let script = script_of(&drawn.over(Pattern::Uniform, pages, 0.5, 1));
                let run = setup.run(&script.expect("a workload"), &source);
                let occupied = run.expect("it runs").occupied;
                assert_eq!(occupied.held_ns > 0, channels == 2, "{kind} {transfer}");
                assert!(occupied.planes > 0.1, "{kind}");
            }
        }
    }
}
