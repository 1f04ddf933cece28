//! Settings of protocols: what is refused, and modes.

use crate::small_device::{self, PAGES};
use flagstone::commit::{Device, Kind, Options};
use flagstone::ftl::Config;
use flagstone::nand::{Chip, Geometry, Shared, small};
use flagstone::units::{Lpn, Nanos};

/// The error of opening a device with these settings.
fn refused(kind: Kind, options: &Options) -> String {
    let flash = Box::new(small::chip(small::GEOMETRY));
    let opened = Device::open(flash, kind, Config::small(64, None), options, Nanos::ZERO);
    opened
        .err()
        .map_or(String::new(), |error| error.to_string())
}

#[test]
fn settings_that_a_protocol_lacks_or_cannot_have_are_refused() {
    let refused = |kind, name, value| refused(kind, &Options::default().with(name, value));
    assert_eq!(refused(Kind::LightTx, "zone_blocks", "9"), "");
    assert_eq!(
        refused(Kind::LightTx, "log_heads", "2"),
        "lighttx has no setting `log_heads`: use zone_blocks"
    );
    assert!(refused(Kind::Scc, "zone_blocks", "9").contains("it has none"));
    assert!(refused(Kind::MhlM, "log_heads", "65").contains("from 0 to 64"));
    assert!(refused(Kind::GMixSl, "group", "0").contains("from 1"));
    assert_eq!(refused(Kind::GMixSl, "group", "page-full"), "");
    assert!(refused(Kind::Cfc, "block_flags", "yes").contains("use true, false"));
}

#[test]
fn modes_are_settings_that_their_protocols_have() {
    for &kind in Kind::ALL {
        for (index, mode) in kind.info().modes.iter().enumerate() {
            let settings = mode.settings.iter();
            let options = settings.fold(Options::default(), |options, (name, value)| {
                options.with(name, value)
            });
            assert_eq!(options == Options::default(), index == 0, "{}", mode.name);
            assert_eq!(refused(kind, &options), "", "{}", mode.name);
        }
    }
}

/// A chip on which a device wrote each page a few times, the last time with 208 and its number.
fn written(kind: Kind, config: Config) -> Chip {
    let geometry = Geometry {
        blocks_per_plane: 64,
        pages_per_block: 5,
        ..small::GEOMETRY
    };
    let flash = Shared::new(small::chip(geometry));
    let options = small_device::unwaited(kind);
    let device = Device::open(Box::new(flash.clone()), kind, config, &options, Nanos::ZERO);
    let mut device = device.expect("it opens");
    let mut now = device.recovered_at();
    for value in 0..3 * PAGES {
        let tx = device.begin(now).expect("a transaction begins");
        let written = device.write(now, tx, Lpn(value % PAGES), &value.to_le_bytes());
        let committed = device.commit(written.expect("there is room").next, tx);
        now = committed
            .expect("it commits")
            .expect("no group is waited for");
    }
    drop(device);
    flash.take()
}

#[test]
fn a_device_is_refused_with_other_summary_pages_than_it_was_written_with() {
    for &kind in Kind::ALL {
        for has_summaries in [false, true] {
            let mut config = Config::small(PAGES, Some(3));
            config.summary_pages = has_summaries;
            let chip = written(kind, config);
            let open = |config| {
                let flash = Box::new(chip.clone());
                Device::open(
                    flash,
                    kind,
                    config,
                    &small_device::unwaited(kind),
                    Nanos::ZERO,
                )
            };
            let holds_all = |mut device: Device| {
                (0..PAGES).all(|at| {
                    let (_, bytes) = device.read(Nanos::ZERO, None, Lpn(at)).expect("it reads");
                    bytes.expect("it was written")[..4] == (2 * PAGES + at).to_le_bytes()
                })
            };
            assert!(holds_all(open(config).expect("it opens")), "{kind}");
            config.summary_pages = !has_summaries;
            match open(config) {
                Err(error) => {
                    let why = error.to_string();
                    assert!(why.contains("`summary_pages`"), "{kind}: {why}");
                }
                // Who finds its pages in a table has no need of summaries, and need not see them.
                Ok(device) => assert!(has_summaries && holds_all(device), "{kind}"),
            }
        }
    }
}

#[test]
fn a_device_is_refused_with_fewer_pages_than_it_was_written_with() {
    for &kind in Kind::ALL {
        let mut config = Config::small(PAGES, Some(3));
        let chip = written(kind, config);
        for tells in [false, true] {
            config.logical_pages = Some(PAGES - 1);
            let mut options = small_device::unwaited(kind);
            options.tells = tells;
            let flash = Box::new(chip.clone());
            let refused = Device::open(flash, kind, config, &options, Nanos::ZERO).map(drop);
            let why = refused
                .expect_err("the last page would be lost")
                .to_string();
            assert!(
                why.starts_with("not a device of this format"),
                "{kind}: {why}"
            );
        }
    }
}
