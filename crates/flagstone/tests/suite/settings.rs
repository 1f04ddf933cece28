//! Settings of protocols: what is refused, and modes.

use flagstone::commit::{Device, Kind, Options};
use flagstone::ftl::Config;
use flagstone::nand::small;
use flagstone::units::Nanos;

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
