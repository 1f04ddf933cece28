//! Golden devices: what each version of the format on flash was like. A program opens those of its
//! own version and finds what they held, and refuses all others with their version in the message.
//! data/golden/README.md says how they are made.

use super::golden_files;
use flagstone::commit::Kind;
use flagstone::ftl::{FORMAT_VERSION, header};
use flagstone::nand::Contents;
use flagstone_host::Stack;
use flagstone_host::fuzzing::sample::{self, Records};
use flagstone_lab::image;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// The devices of this version.
fn own() -> PathBuf {
    golden_files::path(&format!("v{FORMAT_VERSION}"))
}

fn file_of(stack: Stack) -> String {
    format!("{}.zst", stack.to_string().replace(':', "-"))
}

/// `plain` rolls nothing back: it holds something else than all others.
fn records_of(stack: Stack) -> &'static str {
    match stack {
        Stack::Force(Kind::Plain) => "records-plain.txt",
        _ => "records.txt",
    }
}

/// Records, a line each: page, slot, bytes.
fn lines(records: &Records) -> String {
    let mut text = String::new();
    for ((page, slot), bytes) in records {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "{page} {slot} {hex}").expect("text takes all");
    }
    text
}

/// Writes the devices of this version that are not there: each is written once.
fn make() {
    for stack in Stack::all() {
        golden_files::make(&own().join(file_of(stack)), || {
            let records = lines(&sample::records(stack));
            fs::create_dir_all(own()).expect("it can be made");
            fs::write(own().join(records_of(stack)), records).expect("it can be written");
            image::to_bytes(&sample::contents(stack))
        });
    }
}

fn contents(folder: &Path, stack: Stack) -> Option<Contents> {
    let path = folder.join(file_of(stack));
    let bytes = path.exists().then(|| golden_files::read(&path))?;
    let contents = image::from_bytes(&bytes, &sample::geometry(stack));
    Some(contents.expect("it fits its chip"))
}

#[test]
fn a_golden_device_is_opened_with_what_it_held_or_refused_by_its_version() {
    make();
    let (mut opened, mut versions) = (0, 0);
    for entry in fs::read_dir(golden_files::path("")).expect("there are golden devices") {
        let folder = entry.expect("readable").path();
        let name = folder
            .file_name()
            .expect("entries have names")
            .to_string_lossy();
        let Some(version) = name.strip_prefix('v').and_then(|v| v.parse::<u8>().ok()) else {
            continue;
        };
        versions += 1;
        for stack in Stack::all() {
            let Some(contents) = contents(&folder, stack) else {
                assert!(version < FORMAT_VERSION, "{name} has no device of {stack}");
                continue;
            };
            match sample::open(stack, contents) {
                Ok(records) => {
                    assert_eq!(version, FORMAT_VERSION, "{stack} of {name} is not refused");
                    let held = fs::read_to_string(folder.join(records_of(stack)));
                    assert_eq!(lines(&records), held.expect("beside the device"), "{stack}");
                    opened += 1;
                }
                Err(why) => {
                    assert_ne!(version, FORMAT_VERSION, "{stack}: {why}");
                    assert!(
                        why.contains(&format!("version {version} of the format")),
                        "{why}"
                    );
                }
            }
        }
    }
    assert_eq!(opened, Stack::all().len(), "of {versions} versions");
}

#[test]
fn a_device_of_another_version_is_refused_whatever_the_stack() {
    for version in (0..7).filter(|&version| version != FORMAT_VERSION) {
        for stack in Stack::all() {
            let mut contents = contents(&own(), stack).expect("there is one of each");
            let kept = contents.spare_kept;
            for area in contents.spare.chunks_exact_mut(kept) {
                let kind = &mut area[header::KIND.start];
                if *kind != 0xff {
                    *kind = *kind & 0x1f | version << 5;
                }
            }
            let why = sample::open(stack, contents).expect_err("it is foreign");
            let says = format!("version {version} of the format, this program reads version");
            assert!(why.contains(&says), "{stack}: {why}");
        }
    }
}

/// The control of both: the same damage without the version opens, and finds nothing.
#[test]
fn a_device_whose_pages_are_blank_is_not_refused() {
    let mut blank = contents(&own(), Stack::Wal).expect("there is one of each");
    blank.spare.fill(0xff);
    blank.summary.fill(0);
    assert_eq!(sample::open(Stack::Wal, blank), Ok(Records::new()));
}
