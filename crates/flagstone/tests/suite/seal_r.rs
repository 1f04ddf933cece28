//! SEAL with bounded restarts, where its roots fail.

use flagstone::commit::{Device, DeviceError, Kind, Options};
use flagstone::ftl::{Config, FtlError, PageKind, header};
use flagstone::layout::get;
use flagstone::nand::small::{self, Programmed, Watched};
use flagstone::nand::{Geometry, Shared};
use flagstone::units::{Lpn, Nanos};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Fails if the device writes blocks that no root has announced: a restart does not read them.
#[test]
fn a_device_whose_roots_fail_takes_no_more_work_and_loses_nothing() {
    let geometry = Geometry {
        channels: 1,
        ..small::GEOMETRY
    };
    let (chip, fails) = (
        Shared::new(small::chip(geometry)),
        Arc::new(AtomicBool::new(false)),
    );
    let open = || {
        let (chip, roots_fail) = (chip.clone(), Arc::clone(&fails));
        let (config, options) = (Config::small(100, None), Options::default());
        let fails = move |programmed: &Programmed<'_>| {
            let kind = get(programmed.spare, header::KIND) as u8 & 0x1f;
            roots_fail.load(Ordering::Relaxed) && kind == PageKind::Root as u8
        };
        let flash = Box::new(Watched { chip, fails });
        Device::open(flash, Kind::SealR, config, &options, Nanos::ZERO).expect("it opens")
    };
    let mut device = open();
    let mut now = device.recovered_at();
    let mut put = |device: &mut Device, at: u32, value: u8| -> Result<(), DeviceError> {
        let tx = device.begin(now)?;
        for page in [at, at + 50] {
            now = device.write(now, tx, Lpn(page), &[value])?.next;
        }
        now = device.commit(now, tx)?.expect("it is alone");
        Ok(())
    };
    let (mut holds, mut refused) = ([0; 50], 0);
    for n in 0..600u32 {
        fails.store(n > 200, Ordering::Relaxed);
        let (at, value) = (n % 50, n as u8);
        match put(&mut device, at, value) {
            Ok(()) => holds[at as usize] = value,
            Err(DeviceError::Ftl(FtlError::MetaFull)) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 300, "{refused}");
    drop(device);
    fails.store(false, Ordering::Relaxed);
    let mut device = open();
    device.check().expect("the books agree");
    for at in 0..100u32 {
        let read = device.read(Nanos::ZERO, None, Lpn(at)).expect("it reads").1;
        let value = read.expect("it is there")[0];
        assert_eq!(value, holds[at as usize % 50], "page {at}");
    }
}
