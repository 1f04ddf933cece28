//! Checksums of pages. Each test has a control: the same without checksums.

use flagstone::ftl::{
    Cause, Config, Format, Ftl, FtlError, Header, PageKind, Slot, Stream, header, sums,
};
use flagstone::nand::{Chip, Contents, Flash, FlashError, Geometry, Shared, Timing, small};
use flagstone::units::{Lpn, Nanos, Pbn, Ppn};

const FORMAT: Format = {
    let mut format = Format::NONE;
    (format.tail_bytes, format.flag_bytes) = (6, 1);
    (format.persist_map, format.logs) = (true, 1);
    format
};
const DATA: [u8; 16] = *b"sixteen letters.";

fn config(checksums: bool) -> Config {
    let mut config = Config::small(200, None);
    config.checksums = checksums;
    config
}

fn mount(chip: Chip, checksums: bool) -> Result<Ftl, FtlError> {
    let mounted = Ftl::mount(Box::new(chip), config(checksums), FORMAT, Nanos::ZERO);
    mounted.map(|(ftl, _)| ftl)
}

fn blank(flash: impl Flash + 'static, checksums: bool) -> Ftl {
    let mounted = Ftl::mount(Box::new(flash), config(checksums), FORMAT, Nanos::ZERO);
    let (mut ftl, _) = mounted.expect("it is blank");
    ftl.finish_mount();
    ftl
}

fn append(ftl: &mut Ftl, lpn: u32) -> Ppn {
    let page = (PageKind::Data, Lpn(lpn), None);
    let tail = [1, 2, 3, 4, 5, 0xff];
    let to = (Stream::Host, Some(0));
    let written = ftl.append(Nanos::ZERO, to, page, &tail, &DATA, Cause::Host);
    written.expect("there is room").at
}

/// What the cells hold after two pages, and where these are.
fn written(checksums: bool) -> (Contents, [Ppn; 2]) {
    let mut ftl = blank(small::chip(small::GEOMETRY), checksums);
    let at = [3, 4].map(|lpn| append(&mut ftl, lpn));
    let chip = ftl.into_flash().into_model().expect("it is simulated");
    (chip.contents(), at)
}

/// Reads a page of a device with these cells. `data` may be empty.
fn read(contents: &Contents, checksums: bool, at: Ppn, data: &mut [u8]) -> Result<(), FlashError> {
    let chip = Chip::with_contents(small::GEOMETRY, Timing::default(), contents.clone());
    let mut ftl = mount(chip.expect("they fit"), checksums).expect("roots are as they were");
    let mut spare = [0; header::SIZE];
    let read = ftl.read(Nanos::ZERO, at, data, &mut spare, Cause::Host);
    let errors = ftl.stats().checksum_errors;
    assert_eq!(errors, u64::from(read.is_err()), "errors are counted");
    if read.is_ok() && checksums {
        assert_eq!(
            Header::parse(&spare).map(|head| head.lpn.0),
            Some(3),
            "what is read is as without checksums"
        );
    }
    read.map(|_| ())
}

#[test]
fn every_flipped_bit_is_noticed_but_those_of_flags() {
    for checksums in [true, false] {
        let (right, [at, _]) = written(checksums);
        let mut page = vec![0; 256];
        assert_eq!(read(&right, checksums, at, &mut page), Ok(()));
        assert_eq!(page[..16], DATA);
        let uncorrectable = |read: Result<(), FlashError>| matches!(read, Err(FlashError::Uncorrectable { at: page, .. }) if page == at);
        for bit in 0..8 * DATA.len() {
            let mut wrong = right.clone();
            let (_, data) = &mut wrong.data[0];
            data[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                uncorrectable(read(&wrong, checksums, at, &mut page)),
                checksums
            );
            assert_eq!(read(&wrong, checksums, at, &mut []), Ok(()), "not read");
        }
        let flags = 8 * (header::SIZE + 5)..8 * (header::SIZE + 6);
        for bit in 0..8 * (header::SIZE + 6 + sums::SIZE) {
            let mut wrong = right.clone();
            let start = at.index() * wrong.spare_kept;
            wrong.spare[start + bit / 8] ^= 1 << (bit % 8);
            let noticed = checksums && !flags.contains(&bit);
            for data in [&mut page[..], &mut []] {
                let read = read(&wrong, checksums, at, data);
                assert_eq!(uncorrectable(read), noticed, "bit {bit}");
            }
        }
    }
}

#[test]
fn a_page_in_the_place_of_another_is_noticed() {
    for checksums in [true, false] {
        let (mut contents, [one, two]) = written(checksums);
        let kept = contents.spare_kept;
        let area = |at: Ppn| at.index() * kept..(at.index() + 1) * kept;
        let spare = contents.spare[area(one)].to_vec();
        contents.spare.copy_within(area(two), area(one).start);
        contents.spare[area(two)].copy_from_slice(&spare);
        for at in [one, two] {
            let read = read(&contents, checksums, at, &mut [0; 256]);
            assert_eq!(read.is_err(), checksums);
        }
    }
}

#[test]
fn a_page_that_reads_as_blank_is_noticed_while_it_is_live() {
    for checksums in [true, false] {
        let mut flash = Shared::new(small::chip(small::GEOMETRY));
        let mut ftl = blank(flash.clone(), checksums);
        let at = append(&mut ftl, 3);
        let block = ftl.geometry().block_of(at);
        flash.erase(Nanos::ZERO, block).expect("it is good");
        let mut read = || {
            let read = ftl.read(Nanos::ZERO, at, &mut [0; 256], &mut [], Cause::Host);
            let is_error = read.is_err();
            ftl.kill(at);
            let dead = ftl.read(Nanos::ZERO, at, &mut [0; 256], &mut [], Cause::Host);
            assert!(dead.is_ok(), "a page that nobody needs may be blank");
            is_error
        };
        assert_eq!(read(), checksums);
    }
}

/// A device with a root, translation pages, a log and full blocks.
fn full_of_everything(checksums: bool) -> Chip {
    let mut ftl = blank(small::chip(small::GEOMETRY), checksums);
    for lpn in 0..20 {
        let at = append(&mut ftl, lpn);
        ftl.set_slot(Lpn(lpn), Slot::Page(at));
    }
    let now = ftl.checkpoint(Nanos::ZERO, vec![7; 300]).unwrap();
    ftl.log(now, 0, b"a log page").unwrap();
    assert!(ftl.stats().summaries > 0);
    ftl.into_flash().into_model().expect("it is simulated")
}

#[test]
fn pages_of_every_sort_are_found_again_by_a_restart() {
    for checksums in [true, false] {
        let chip = full_of_everything(checksums);
        let flash: Box<dyn Flash> = Box::new(chip);
        let (mut ftl, mounted) = Ftl::mount(flash, config(checksums), FORMAT, Nanos::ZERO).unwrap();
        assert_eq!(mounted.blob, [7; 300]);
        assert_eq!(mounted.logs.len(), 1);
        assert_eq!(mounted.logs[0].data, b"a log page");
        let mut found = Vec::new();
        let blocks = ftl.blocks().for_data();
        let scanned = ftl.scan(mounted.done, &blocks, |at, head, tail| {
            assert_eq!(tail, [1, 2, 3, 4, 5, 0xff]);
            found.push((head.lpn, at));
        });
        scanned.unwrap();
        assert_eq!(found.len(), 20);
        for (lpn, at) in found {
            assert_eq!(ftl.slot(lpn).ppn(), Some(at));
            let mut page = [0; 256];
            let read = ftl.read(Nanos::ZERO, at, &mut page, &mut [], Cause::Host);
            assert_eq!(read.map(|read| read.data_bytes), Ok(16));
            assert_eq!(page[..16], DATA);
        }
        assert_eq!(ftl.stats().checksum_errors, 0);
    }
}

#[test]
fn a_translation_page_that_reads_as_blank_is_an_error() {
    for checksums in [true, false] {
        let mut contents = full_of_everything(checksums).contents();
        let kept = contents.spare_kept;
        let is_map = |spare: &[u8]| spare[header::KIND.start] & 0x17 == PageKind::Map as u8;
        let place = contents.spare.chunks_exact(kept).position(is_map).unwrap();
        let at = Ppn(place as u32);
        contents.spare[place * kept..(place + 1) * kept].fill(0xff);
        contents.data.retain(|(page, _)| *page != at);
        contents.programs[place] = 0;
        let chip = Chip::with_contents(small::GEOMETRY, Timing::default(), contents).unwrap();
        let error = mount(chip, checksums).err();
        assert_eq!(error, Some(FtlError::Unreadable { at }));
    }
}

#[test]
fn a_device_is_refused_with_checksums_if_it_has_none_and_the_other_way_round() {
    for checksums in [true, false] {
        let chip = full_of_everything(checksums);
        assert!(mount(chip.clone(), checksums).is_ok());
        let error = mount(chip, !checksums).err();
        assert!(
            matches!(&error, Some(FtlError::Foreign(why)) if why.contains("checksums")),
            "{error:?}"
        );
        // Without a root it is the scan that refuses it.
        let (contents, [at, _]) = written(checksums);
        let chip = Chip::with_contents(small::GEOMETRY, Timing::default(), contents).unwrap();
        let mut ftl = mount(chip, !checksums).expect("it has no root");
        let block: Pbn = ftl.geometry().block_of(at);
        let scanned = ftl.scan(Nanos::ZERO, &[block], |_, _, _| {});
        assert!(matches!(scanned, Err(FtlError::Foreign(_))));
    }
}

#[test]
fn a_device_without_room_for_checksums_is_refused() {
    let geometry = Geometry {
        spare_bytes: 24,
        ..small::GEOMETRY
    };
    assert!(Ftl::capacity(&geometry, &config(false), &FORMAT).is_ok());
    let error = Ftl::capacity(&geometry, &config(true), &FORMAT).unwrap_err();
    assert_eq!(
        error.0,
        "spare_bytes is 24, this protocol needs 25 with checksums"
    );
}
