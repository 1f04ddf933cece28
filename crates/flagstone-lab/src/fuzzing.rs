//! Entry points of fuzz targets. Each function passes bytes to a parser of files or arguments that
//! users write, and returns whether they were accepted. None may panic on any input. The targets
//! are in `fuzz/`; a test of `flagstone-papers` runs the same functions on seeded damage.

use crate::device::DeviceSpec;
use crate::image;
use crate::trace::block::columns::PRESETS as TABLES;
use crate::trace::block::fio::Waits;
use crate::trace::block::table::{self, Table};
use crate::trace::block::time::TimeUnit;
use crate::trace::block::{BlockOptions, blkparse, fio};
use crate::trace::input::ImportError;
use crate::trace::{Trace, bpftrace, csv, file, waldump};
use flagstone::commit::Kind;
use flagstone_host::Stack;
use flagstone_host::fuzzing::sample;
use std::collections::BTreeMap;
use std::io::Write;

/// Imports a text as a trace.
type Import = fn(&[u8]) -> Result<Trace, ImportError>;

/// Every importer. That of fio occurs once for each interpretation of `wait` lines.
const IMPORTS: [(&str, Import); 7] = [
    ("waldump", |text| {
        Ok(waldump::import(text, &waldump::WalOptions::default())?.0)
    }),
    ("bpftrace", |text| {
        let options = bpftrace::ReadOptions {
            page_bytes: 8192,
            relation_names: BTreeMap::new(),
        };
        Ok(bpftrace::import(text, &options)?.0)
    }),
    ("csv", |text| {
        let mut events = Vec::new();
        let head = csv::import(text, 4096, &mut |event| {
            events.push(event);
            Ok(())
        })?;
        Ok(Trace { events, ..head })
    }),
    ("preset", |text| {
        let (&which, text) = text.split_first().unwrap_or((&0, text));
        let table = Table {
            time_unit: which.is_multiple_of(2).then_some(TimeUnit::Seconds),
            ..Table::of(&TABLES[usize::from(which) % TABLES.len()])
        };
        let requests = table::import(text, &BlockOptions::new(512), &table)?;
        Ok(requests.into_trace()?.0)
    }),
    ("blkparse", |text| {
        let action = blkparse::Action::Issue;
        let requests = blkparse::import(text, &BlockOptions::new(4096), action)?;
        Ok(requests.into_trace()?.0)
    }),
    ("fio", |text| {
        let requests = fio::import(text, &BlockOptions::new(4096), Some(Waits::ForUs))?;
        Ok(requests.into_trace()?.0)
    }),
    ("fio, any rate", |text| {
        let options = BlockOptions {
            any_rate: true,
            ..BlockOptions::new(1 << 20)
        };
        Ok(fio::import(text, &options, None)?.into_trace()?.0)
    }),
];

/// Passes a text to the importer selected by the first byte. A resulting trace must be valid.
pub fn trace(bytes: &[u8]) -> bool {
    let Some((&which, text)) = bytes.split_first() else {
        return false;
    };
    let (name, import) = IMPORTS[usize::from(which) % IMPORTS.len()];
    match import(text) {
        Ok(trace) => {
            trace
                .validate()
                .unwrap_or_else(|flaw| panic!("{name}: {flaw}"));
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}

/// Parses a trace file (Parquet).
pub fn trace_file(bytes: &[u8]) -> bool {
    let mut draft = tempfile::NamedTempFile::new().expect("a temporary file");
    draft.write_all(bytes).expect("there is room");
    file::read(draft.path()).is_ok()
}

/// Parses a device file (TOML). It must survive a round trip.
pub fn device_file(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let Ok(spec) = DeviceSpec::parse(text, "fuzzed") else {
        return false;
    };
    let again = DeviceSpec::parse(&spec.to_toml(), "fuzzed");
    let again = again.unwrap_or_else(|why| panic!("{why}\n{}", spec.to_toml()));
    assert_eq!(again.geometry, spec.geometry);
    assert_eq!(again.timing, spec.timing);
    true
}

/// Loads the image of a device: that of [`sample`] under plain, as written by `device fill`.
pub fn device_image(bytes: &[u8]) -> bool {
    let kind = Kind::Plain;
    let setup = image::Setup {
        kind,
        config: sample::DEVICE,
        options: flagstone::commit::Options::default(),
    };
    image::contents(bytes, &sample::geometry(Stack::Force(kind)), &setup).is_some()
}

/// Decodes the part of such an image that its checksum protects.
pub fn device_payload(bytes: &[u8]) -> bool {
    let geometry = sample::geometry(Stack::Force(Kind::Plain));
    let Ok(contents) = image::from_bytes(bytes, &geometry) else {
        return false;
    };
    let again = image::from_bytes(&image::to_bytes(&contents), &geometry);
    assert_eq!(again, Ok(contents));
    true
}
