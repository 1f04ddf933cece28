//! Settings of protocols: what is refused, and modes.

use crate::small_device::{self, PAGES};
use flagstone::commit::{Device, DeviceError, Kind, Options};
use flagstone::ftl::{Config, VictimPolicy};
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
        "lighttx has no setting `log_heads`: use zone_blocks, map_cache"
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

/// Writes every page, in transactions of up to four pages: `first` and its number.
fn write_all(device: &mut Device, first: u32) -> Result<(), DeviceError> {
    let mut now = device.recovered_at();
    let mut pages = (0..PAGES).peekable();
    for nth in 1.. {
        if pages.peek().is_none() {
            break;
        }
        let tx = device.begin(now)?;
        for at in pages.by_ref().take(1 + nth % 4) {
            let value = first + at;
            now = device.write(now, tx, Lpn(at), &value.to_le_bytes())?.next;
        }
        now = match device.commit(now, tx)? {
            Some(done) => done,
            None => device.acknowledged(now, true)?[0].1,
        };
    }
    Ok(())
}

/// Whether every page has the value that [`write_all`] gave it.
fn holds_all(device: &mut Device, first: u32) -> bool {
    let now = device.recovered_at();
    (0..PAGES).all(|at| {
        let (_, bytes) = device.read(now, None, Lpn(at)).expect("it reads");
        bytes.is_some_and(|bytes| bytes[..4] == (first + at).to_le_bytes())
    })
}

/// How a device is opened.
#[derive(Clone)]
struct Way {
    kind: Kind,
    config: Config,
    options: Options,
}

impl Way {
    fn of(kind: Kind) -> Way {
        Way {
            kind,
            config: Config::small(PAGES, Some(3)),
            options: small_device::unwaited(kind),
        }
    }

    fn open(&self, flash: &Shared<Chip>) -> Result<Device, DeviceError> {
        let flash = Box::new(flash.clone());
        Device::open(flash, self.kind, self.config, &self.options, Nanos::ZERO)
    }

    /// A chip on which a device wrote every page three times, the last time 2000 and its number.
    /// Then it rolled one transaction back, and the power failed during another.
    fn written(&self) -> Chip {
        let flash = Shared::new(small::chip(Geometry {
            blocks_per_plane: 64,
            pages_per_block: 5,
            ..small::GEOMETRY
        }));
        let mut device = self.open(&flash).expect("it opens");
        for first in [0, 1000, 2000] {
            write_all(&mut device, first).expect("there is room");
        }
        // Without transactions all of it would count.
        let ends = [true, false].into_iter();
        for ends in ends.filter(|_| self.kind != Kind::Plain) {
            let now = device.recovered_at();
            let tx = device.begin(now).expect("a transaction begins");
            for at in [4, 5, 50, 6, 51].map(Lpn) {
                let written = device.write(now, tx, at, b"never committed");
                written.expect("there is room");
            }
            if ends {
                device.abort(now, tx).expect("it is rolled back");
            }
        }
        drop(device);
        flash.take()
    }
}

/// What becomes of a device that is opened another way than it was written.
#[derive(Debug, PartialEq)]
enum Outcome {
    Refused(String),
    /// It has what it had, and what is written then is there if it is opened again.
    Whole,
    Lost,
}

fn outcome(chip: &Chip, way: &Way, was: &Way) -> Outcome {
    let flash = Shared::new(chip.clone());
    let mut device = match way.open(&flash) {
        Err(error) => return Outcome::Refused(error.to_string()),
        Ok(device) => device,
    };
    let mut is_whole = holds_all(&mut device, 2000) && device.check().is_ok();
    write_all(&mut device, 3000).expect("there is room");
    is_whole &= holds_all(&mut device, 3000);
    drop(device);
    for way in [way, was] {
        is_whole &= way
            .open(&flash)
            .map_or(true, |mut device| holds_all(&mut device, 3000));
    }
    if is_whole {
        Outcome::Whole
    } else {
        Outcome::Lost
    }
}

#[test]
fn a_device_is_refused_with_other_summary_pages_than_it_was_written_with() {
    for &kind in Kind::ALL {
        for has_summaries in [false, true] {
            let (mut was, mut way) = (Way::of(kind), Way::of(kind));
            was.config.summary_pages = has_summaries;
            way.config.summary_pages = !has_summaries;
            match outcome(&was.written(), &way, &was) {
                Outcome::Refused(why) => {
                    assert!(why.contains("`summary_pages`"), "{kind}: {why}");
                }
                // Who finds its pages in a table has no need of summaries, and need not see them.
                found => assert!(
                    has_summaries && found == Outcome::Whole,
                    "{kind}: {found:?}"
                ),
            }
        }
    }
}

#[test]
fn a_device_is_refused_with_fewer_pages_than_it_was_written_with() {
    for &kind in Kind::ALL {
        for tells in [false, true] {
            let (was, mut way) = (Way::of(kind), Way::of(kind));
            way.config.logical_pages = Some(PAGES - 1);
            way.options.tells = tells;
            let found = outcome(&was.written(), &way, &was);
            let is_refused = |why: &String| why.starts_with("not a device of this format");
            assert!(
                matches!(&found, Outcome::Refused(why) if is_refused(why)),
                "{kind}: {found:?}"
            );
        }
    }
}

/// Values of settings, of which each setting takes some.
const VALUES: [&str; 10] = [
    "0",
    "1",
    "2",
    "3",
    "8",
    "16",
    "64",
    "true",
    "false",
    "page-full",
];

/// A change of the configuration of the translation layer.
type Change = fn(&mut Config);

#[test]
fn a_device_that_is_opened_with_other_settings_is_refused_or_whole() {
    let changes: [(&str, Change); 8] = [
        ("more pages", |config| {
            config.logical_pages = Some(PAGES + 40)
        }),
        ("gc_threshold", |config| config.gc_threshold = 0.2),
        ("victims", |config| {
            config.victims = VictimPolicy::WEAR_AWARE
        }),
        ("static_wear_gap", |config| config.static_wear_gap = Some(1)),
        ("copies_stay", |config| {
            config.copies_stay = !config.copies_stay
        }),
        ("checksums", |config| config.checksums = true),
        ("thin", |config| config.thin = true),
        ("works_ahead", |config| config.works_ahead = true),
    ];
    let (mut whole, mut refused) = (0, 0);
    let mut judge = |what: &str, found: Outcome| match found {
        Outcome::Whole => whole += 1,
        Outcome::Refused(_) => refused += 1,
        Outcome::Lost => panic!("{what}"),
    };
    for &kind in Kind::ALL {
        let was = Way::of(kind);
        let chip = was.written();
        for (name, change) in changes {
            let mut way = was.clone();
            change(&mut way.config);
            judge(&format!("{kind}, {name}"), outcome(&chip, &way, &was));
        }
        let settings = kind.info().settings.iter();
        for (name, value) in settings.flat_map(|own| VALUES.map(|value| (own.name, value))) {
            let mut way = was.clone();
            way.options.settings.set(name, value);
            let found = outcome(&chip, &way, &was);
            judge(&format!("{kind}, {name} {value}"), found);
        }
    }
    assert!(
        whole > 100 && refused > 50,
        "{whole} whole, {refused} refused"
    );
}

/// Control: the flash does not say which protocol wrote it, so that pages can be lost in silence.
#[test]
fn a_device_that_is_opened_with_another_protocol_may_lose_pages() {
    let mut lost = 0;
    for &kind in Kind::ALL {
        let was = Way::of(kind);
        let chip = was.written();
        for &other in Kind::ALL.iter().filter(|&&other| other != kind) {
            lost += u32::from(outcome(&chip, &Way::of(other), &was) == Outcome::Lost);
        }
    }
    assert!(lost > 10, "{lost}");
}
