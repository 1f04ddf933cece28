//! Heads of MHL-D: each has its planes and its transaction.
//!
//! Codes       D7 of [`mhl_d`]

use crate::small_device::{NOTHING, Small};
use flagstone::commit::{DeviceError, Kind, Options};
use flagstone::units::{Lpn, Ppn};

#[test]
fn pages_of_a_transaction_follow_each_other_in_the_log_of_its_head() {
    let mut small = Small::new(Kind::MhlD, Options::default());
    let (a, b) = (small.begin(), small.begin());
    for at in 0..4 {
        small.write(a, at, 1);
        small.write(b, 10 + at, 2);
    }
    small.commit(a);
    small.commit(b);
    for first in [0u32, 10] {
        let page = |at: u32| small.device().ftl().slot(Lpn(first + at)).ppn();
        let pages: Vec<Ppn> = (0..4).filter_map(page).collect();
        let consecutive = pages.windows(2).all(|two| two[1].0 == two[0].0 + 1);
        assert!(pages.len() == 4 && consecutive, "{pages:?}");
    }
    let mut small = small.restart(NOTHING);
    assert_eq!([0, 3, 10, 13].map(|at| small.value(at)), [1, 1, 2, 2]);
}

#[test]
fn d7_a_transaction_that_finds_no_head_is_refused() {
    let mut small = Small::new(Kind::MhlD, Options::default());
    let (a, _) = (small.begin(), small.begin());
    let now = small.now;
    let refused = small.device().begin(now);
    assert!(matches!(
        refused,
        Err(DeviceError::TooManyLive { limit: 2, .. })
    ));
    small.commit(a);
    small.begin();
}

#[test]
fn heads_keep_to_their_planes_and_survive_many_slides() {
    let mut small = Small::new(Kind::MhlD, Options::default());
    for i in 0..500u32 {
        let tx = small.begin();
        (0..i % 4).for_each(|n| small.write(tx, (i * 7 + n * 13) % 50, i as u8));
        small.commit(tx);
        if i % 50 == 0 {
            small.check();
        }
    }
    assert!(small.checkpoints() > 10 && small.device().stats().collections > 10);
    let before: Vec<u8> = (0..50).map(|at| small.value(at)).collect();
    let mut small = small.restart(NOTHING);
    let after: Vec<u8> = (0..50).map(|at| small.value(at)).collect();
    assert_eq!(before, after);
}
