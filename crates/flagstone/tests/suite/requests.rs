//! Requests that the device refuses under every protocol, and what it reports about itself.

use crate::small_device::{EVERYTHING, Small, unwaited};
use flagstone::commit::{Device, DeviceError, Isolation, Kind, Options, Recovered};
use flagstone::ftl::{BlockState, Config, Ftl, FtlError};
use flagstone::nand::{Cut, Geometry, small};
use flagstone::units::{Lpn, Nanos, Pbn, TxId};

/// Pages of a device that is filled.
const PAGES: u32 = 96;

const CONFIG: Config = Config::small(24, None);

fn device(kind: Kind) -> Device {
    device_after(kind, |_, _| ())
}

/// A blank device whose recovery is followed by `then`.
fn device_after(kind: Kind, then: impl FnOnce(&mut Ftl, &mut Recovered)) -> Device {
    let (flash, options) = (Box::new(small::chip(small::GEOMETRY)), Options::default());
    let recover = |ftl: &mut Ftl, mounted| {
        let mut recovered = kind.recover(ftl, mounted, &options)?;
        then(ftl, &mut recovered);
        Ok(recovered)
    };
    let (info, now) = (kind.info(), Nanos::ZERO);
    Device::open_with(flash, info, recover, CONFIG, &options, now).expect("a blank device")
}

/// A device with few blocks, which suits every protocol.
fn small_device(kind: Kind) -> Small {
    let chip = small::chip(Geometry {
        blocks_per_plane: 30,
        pages_per_block: 6,
        strict_order: false,
        ..small::GEOMETRY
    });
    let config = Config::small(PAGES, Some(3));
    Small::on(chip, config, kind, unwaited(kind))
}

/// Protocols with concurrent transactions.
fn side_by_side() -> impl Iterator<Item = Kind> {
    let all = Kind::ALL.iter().copied();
    all.filter(|kind| kind.info().isolation > Isolation::Strict)
}

#[test]
fn requests_that_cannot_be_are_refused_and_change_nothing() {
    for &kind in Kind::ALL {
        let mut device = device(kind);
        let now = device.recovered_at();
        let tx = device.begin(now).expect("the first");
        let (pages, unknown) = (device.pages(), TxId(99));
        let beyond = Err(DeviceError::OutOfRange {
            at: Lpn(pages),
            pages,
        });
        let bytes = device.geometry().page_bytes;
        let long = vec![1; bytes as usize + 1];
        let nobody = DeviceError::NoTransaction(unknown);
        assert_eq!(device.write(now, tx, Lpn(pages), b"x"), beyond, "{kind}");
        assert_eq!(device.trim(now, tx, Lpn(pages)), beyond, "{kind}");
        let read = device.read(now, None, Lpn(pages)).map(drop);
        assert_eq!(read, beyond.clone().map(drop), "{kind}");
        assert_eq!(
            device.write(now, tx, Lpn(0), &long),
            Err(DeviceError::TooLong {
                bytes: long.len(),
                page_bytes: bytes
            })
        );
        assert_eq!(
            device.write(now, unknown, Lpn(0), b"x"),
            Err(nobody.clone())
        );
        let read = device.read(now, Some(unknown), Lpn(0)).map(drop);
        assert_eq!(read, Err(nobody.clone()));
        assert_eq!(device.commit(now, unknown), Err(nobody.clone()));
        assert_eq!(device.abort(now, unknown), Err(nobody));
        let asked = *device.request_stats();
        assert_eq!(
            (asked.begun, asked.pages_written, asked.pages_read),
            (1, 0, 0)
        );
        assert_eq!(device.live().collect::<Vec<_>>(), [tx]);
        device.abort(now, tx).expect("it is live");
        assert_eq!(device.abort(now, tx), Err(DeviceError::NoTransaction(tx)));
        assert_eq!(device.live().count(), 0);
    }
}

#[test]
fn no_more_transactions_are_live_than_the_protocol_takes() {
    for &kind in Kind::ALL {
        let mut device = device(kind);
        let now = device.recovered_at();
        let Some(limit) = device.live_max() else {
            continue;
        };
        for nth in 1..=u64::from(limit) {
            let tx = device.begin(now).expect("one of those that there can be");
            assert_eq!((tx, device.last_tx()), (TxId(nth), tx), "{kind}");
        }
        let protocol = device.info().name;
        let refused = DeviceError::TooManyLive { protocol, limit };
        assert_eq!(device.begin(now), Err(refused), "{kind}");
        device.abort(now, TxId(1)).expect("it is live");
        assert!(device.begin(now).is_ok(), "{kind}");
    }
}

#[test]
fn a_transaction_that_waits_for_its_group_takes_no_further_request() {
    let mut device = device(Kind::GMixSl);
    let now = device.recovered_at();
    let tx = device.begin(now).expect("the first");
    device.write(now, tx, Lpn(3), b"x").expect("written");
    assert_eq!(device.commit(now, tx), Ok(None));
    let waits = DeviceError::Committing(tx);
    assert_eq!(device.write(now, tx, Lpn(4), b"y"), Err(waits.clone()));
    assert_eq!(device.commit(now, tx), Err(waits.clone()));
    assert_eq!(device.abort(now, tx), Err(waits));
    assert!(device.deadline().is_some_and(|at| at > now));
    let done = device.acknowledged(now, true).expect("written");
    assert!(matches!(done[..], [(of, at)] if of == tx && at > now));
    assert_eq!(device.request_stats().committed, 1);
}

#[test]
fn a_page_of_a_live_transaction_is_read_by_it_alone() {
    for kind in side_by_side() {
        let mut device = device(kind);
        let now = device.recovered_at();
        let tx = device.begin(now).expect("the first");
        let now = device
            .write(now, tx, Lpn(5), b"mine")
            .expect("written")
            .next;
        let mut page = vec![0; device.geometry().page_bytes as usize];
        let (read, bytes) = device
            .read_into(now, Some(tx), Lpn(5), &mut page)
            .expect("read");
        assert_eq!((&page[..4], bytes), (&b"mine"[..], Some(4)), "{kind}");
        if kind.info().atomic {
            assert_eq!(device.read(read, None, Lpn(5)), Ok((read, None)), "{kind}");
        }
    }
}

/// Fails if a block that is written, free or kept by the protocol is collected, or if a collection
/// that the caller asks for loses a page.
#[test]
fn a_block_that_a_caller_chooses_is_collected_if_it_can_be() {
    for &kind in Kind::ALL {
        let mut small = small_device(kind);
        for value in [1, 2] {
            (0..PAGES / 2).for_each(|at| small.put(&[(at, value), (at + PAGES / 2, value)]));
        }
        let blocks = small.device().geometry().blocks();
        let mut collected = 0;
        for block in (0..=blocks).map(Pbn) {
            let ftl = small.device().ftl();
            let is_full = block.0 < blocks && ftl.blocks().state(block) == BlockState::Full;
            let (now, before) = (small.now, small.device().stats().collections);
            let done = small.device().collect(now, block);
            let done = done.expect("there is room");
            assert!(is_full || done.is_none(), "{kind}: block {block}");
            let counted = small.device().stats().collections - before;
            assert_eq!(counted, u64::from(done.is_some()), "{kind}");
            small.now = done.unwrap_or(now);
            small.check();
            collected += counted;
        }
        assert!(collected > 5, "{kind}: {collected} blocks");
        assert_eq!(small.values(PAGES), [2; PAGES as usize], "{kind}");
        let mut small = small.restart(EVERYTHING);
        assert_eq!(small.values(PAGES), [2; PAGES as usize], "{kind}");
    }
}

/// Fails if a write is counted that the device did not take.
#[test]
fn writes_that_fail_are_not_counted() {
    for &kind in Kind::ALL {
        let (at, dice, torn) = (20, EVERYTHING, false);
        let mut small = small_device(kind).arm(Cut { at, dice, torn });
        let tx = small.begin();
        let mut pages = (0..20_000).map(|at| at % 20);
        let taken = pages.position(|at| small.try_write(tx, at, 1).is_err());
        let taken = taken.expect("the power fails") as u64;
        let counted = small.device().request_stats().pages_written;
        assert_eq!(counted, taken, "{kind}");
    }
}

/// Writes a value in a separate transaction. Returns when it is acknowledged.
fn put(device: &mut Device, now: Nanos, at: u32, value: u8) -> Result<Nanos, DeviceError> {
    let tx = device.begin(now)?;
    let next = device.write(now, tx, Lpn(at), &[value])?.next;
    match device.commit(next, tx)? {
        Some(done) => Ok(done),
        None => Ok(device.acknowledged(next, true)?[0].1),
    }
}

#[test]
fn a_device_whose_numbers_are_near_their_end_takes_no_new_work_and_can_be_read() {
    let end = (1u64 << 47) / 16 * 15;
    for &kind in Kind::ALL {
        for sequences in [true, false] {
            let mut device = device_after(kind, |ftl, recovered| {
                if sequences {
                    ftl.skip_sequences(end - 100 - ftl.last_seq())
                } else {
                    recovered.last_tx = TxId(end - 40)
                }
            });
            let mut now = put(&mut device, Nanos::ZERO, 5, 9).expect("the first");
            let mut value = 0;
            let error = loop {
                match put(&mut device, now, 3, value + 1) {
                    Ok(done) => (now, value) = (done, value + 1),
                    Err(error) => break error,
                }
            };
            let DeviceError::Ftl(FtlError::Spent(why)) = error else {
                panic!("{kind}: {error}");
            };
            assert!(why.contains("can be read"), "{kind}: {why}");
            assert!(value >= 5, "{kind}: after {value}");
            let read = |device: &mut Device| {
                let (_, bytes) = device.read(now, None, Lpn(3)).expect("it reads");
                bytes.expect("it is there")[0]
            };
            assert_eq!(read(&mut device), value);
            let (flash, options) = (device.into_flash(), Options::default());
            let again = Device::open(flash, kind, CONFIG, &options, now);
            let mut device = again.expect("it starts");
            assert_eq!(read(&mut device), value, "{kind}");
            device.check().expect("the books agree");
            if sequences {
                let refused = device.begin(now);
                let is_spent = matches!(refused, Err(DeviceError::Ftl(FtlError::Spent(_))));
                assert!(is_spent, "{kind}: {refused:?}");
            }
        }
    }
}
