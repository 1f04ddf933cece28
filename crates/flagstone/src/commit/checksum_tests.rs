//! Every protocol on a device with checksums: what it programs is what it reads, after collections,
//! power cuts and restarts, and no checksum is ever wrong.

use super::small_device::{EVERYTHING, PAGES, Small, unwaited};
use super::{Config, Kind};
use crate::ftl::Format;
use crate::nand::{Chip, Cut, Geometry, Timing, small};

/// A chip that keeps no more of a spare area than is used.
fn small(kind: Kind, config: Config) -> Small {
    let format: &Format = &kind.info().format;
    let geometry = Geometry {
        channels: 1,
        packages_per_channel: 2,
        blocks_per_plane: 32,
        pages_per_block: 5,
        strict_order: false,
        ..small::GEOMETRY
    };
    let chip = Chip::new(geometry, Timing::default(), format.spare_bytes(&config));
    Small::on(chip, config, kind, unwaited(kind))
}

#[test]
fn protocols_read_what_they_wrote_through_collections_cuts_and_restarts() {
    let mut copied = 0;
    for &kind in Kind::ALL {
        for summary_pages in [true, false] {
            let config = Config {
                checksums: true,
                summary_pages,
                ..Config::small(PAGES, Some(3))
            };
            let mut small = small(kind, config);
            (0..PAGES).for_each(|at| small.put(&[(at, 1)]));
            small.churn(0..PAGES, |device| device.stats().collections > 60);
            copied += small.device().stats().relocated;
            for at in 0..40 {
                small = small.arm(Cut {
                    at,
                    dice: 0x51 + at,
                    torn: at % 2 == 0,
                });
                let mut value = 0;
                let pair = |value| [(50, value), (51, value)];
                while small.try_put(&pair(value + 1)).is_ok() {
                    value += 1;
                }
                small = small.restart(EVERYTHING);
                let (one, two) = (small.value(50), small.value(51));
                assert!(one == two || !kind.info().atomic, "{kind}: {one} {two}");
                let kept = value == 0 || one == value || one == value + 1;
                assert!(kept || !kind.info().atomic, "{kind}: {one}, not {value}");
                let errors = small.device().stats().checksum_errors;
                assert_eq!(errors, 0, "{kind}");
                small.put(&pair(0));
            }
            small.check();
            assert!(small.device().ftl().config().checksums);
        }
    }
    assert!(copied > 100, "{copied} pages were copied");
}
