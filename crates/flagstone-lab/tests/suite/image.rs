//! A device that is saved and loaded holds what it held and goes on.

use crate::write_amplification::{GEOMETRY, config, device};
use flagstone::commit::{Device, Kind, Options};
use flagstone::nand::{Geometry, Timing};
use flagstone::units::{Lpn, Nanos};
use flagstone_lab::image::{self, ImageError, Setup};
use flagstone_lab::output::Output;
use flagstone_lab::steady;
use flagstone_lab::workload::Workload;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder, and the path of an image in it.
fn file() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    (folder, path)
}

fn save(path: &Path, device: &Device, setup: &Setup) {
    image::save(&Output::new(path, &[]).unwrap(), device, setup).unwrap();
}

fn setup(kind: Kind) -> Setup {
    Setup {
        kind,
        config: config(kind, true),
        options: Options::default(),
    }
}

fn load(path: &Path, setup: &Setup) -> Result<Device, ImageError> {
    image::load(path, &GEOMETRY, Timing::default(), false, setup)
}

fn contents(device: &mut Device, now: Nanos) -> Vec<Option<Vec<u8>>> {
    (0..device.pages())
        .map(|page| {
            let (_, data) = device.read(now, None, Lpn(page)).unwrap();
            data.map(<[u8]>::to_vec)
        })
        .collect()
}

#[test]
fn a_loaded_device_holds_what_it_held_and_goes_on() {
    for &kind in Kind::ALL {
        let setup = setup(kind);
        if kind.suits(&GEOMETRY, &setup.config).is_err() {
            continue;
        }
        let mut first = device(kind, setup.config);
        let pages = first.pages();
        let mut now = steady::age(&mut first, pages, 0.5, 3, Nanos::ZERO).unwrap();
        for page in (0..pages).step_by(7) {
            let tx = first.begin(now).unwrap();
            now = first
                .write(now, tx, Lpn(page), &page.to_le_bytes())
                .unwrap()
                .next;
            if page % 3 == 0 {
                now = first.trim(now, tx, Lpn(page + 1)).unwrap().next;
            }
            now = match first.commit(now, tx).unwrap() {
                Some(done) => done,
                None => first.acknowledged(now, true).unwrap()[0].1,
            };
        }
        let (_folder, path) = file();
        save(&path, &first, &setup);
        let expected = contents(&mut first, now);
        let mut loaded = load(&path, &setup).unwrap();
        let now = loaded.recovered_at();
        assert_eq!(contents(&mut loaded, now), expected, "{kind}");
        loaded.check().unwrap();
        let workload = Workload::uniform_writes(pages, u64::from(pages), 5);
        steady::run(&mut loaded, &workload, now).unwrap();
        loaded.check().unwrap();
    }
}

#[test]
fn a_file_that_is_not_this_device_is_refused_with_the_reason() {
    let right = setup(Kind::Plain);
    let (folder, path) = file();
    let mut device = device(Kind::Plain, right.config);
    steady::age(&mut device, 100, 0.0, 3, Nanos::ZERO).unwrap();
    save(&path, &device, &right);
    let whole = std::fs::read(&path).unwrap();
    let refuse = |bytes: &[u8], setup: &Setup| {
        std::fs::write(&path, bytes).unwrap();
        load(&path, setup).err().expect("refused").to_string()
    };
    assert!(refuse(b"a text file", &right).contains("not the image"));
    assert!(refuse(b"", &right).contains("not the image"));
    for len in [5, 9, 12, 100, 600, whole.len() - 1] {
        assert!(
            refuse(&whole[..len], &right).contains("ends early"),
            "{len}"
        );
    }
    let mut other = whole.clone();
    other[8] = 9;
    assert!(refuse(&other, &right).contains("version 9"));
    let mut other = whole.clone();
    *other.last_mut().unwrap() ^= 0x55;
    assert!(refuse(&other, &right).contains("damaged"));
    // A payload that says of itself that it is longer than the device.
    let mut other = whole.clone();
    let key = b"\"payload_bytes\":";
    let mut windows = other.windows(key.len());
    let at = windows
        .position(|window| window == key)
        .expect("the head has it")
        + key.len();
    other.splice(at..at, *b"999999999");
    let head = u32::from_le_bytes(other[10..14].try_into().unwrap()) + 9;
    other[10..14].copy_from_slice(&head.to_le_bytes());
    assert!(refuse(&other, &right).contains("its payload has 999999999"));
    let mut config = right.clone();
    config.config.summary_pages = false;
    assert!(refuse(&whole, &config).contains("another configuration"));
    let mut published = right.clone();
    published.options.as_published = true;
    assert!(refuse(&whole, &published).contains("another variant"));
    let geometry = Geometry {
        blocks_per_plane: 64,
        ..GEOMETRY
    };
    let error = image::load(&path, &geometry, Timing::default(), false, &right)
        .err()
        .expect("another shape");
    assert!(
        error.to_string().contains("128 in the file, 64 requested"),
        "{error}"
    );
    let missing = load(&folder.path().join("missing"), &right);
    assert!(missing.err().unwrap().to_string().contains("be read"));
}
