//! Effects of a read from the medium on others: it blocks nobody, and damage that it finds is an
//! error only for readers of that page.

use super::*;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const PAGES: u32 = 40;

/// A medium that returns damaged data for one page, and blocks reads of another page until other
/// pages were read.
#[derive(Default)]
struct Odd {
    below: Memory,
    damaged: OnceLock<u64>,
    waits: OnceLock<u64>,
    is_waiting: AtomicBool,
    /// Number of reads while one waits.
    others: AtomicU64,
}

#[derive(Clone, Default)]
struct Shown(Arc<Odd>);

impl Medium for Shown {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        let odd = &*self.0;
        odd.below.read_at(offset, into)?;
        let page = into.first_chunk().copied().map(u64::from_le_bytes);
        if page.is_some() && page == odd.damaged.get().copied() {
            into[100] ^= 1;
        }
        if page.is_some() && page == odd.waits.get().copied() {
            odd.is_waiting.store(true, Ordering::SeqCst);
            let until = Instant::now() + Duration::from_secs(10);
            while odd.others.load(Ordering::SeqCst) == 0 && Instant::now() < until {
                std::thread::yield_now();
            }
        } else if odd.is_waiting.load(Ordering::SeqCst) {
            odd.others.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.0.below.write_at(offset, bytes)
    }

    fn sync(&self) -> std::io::Result<()> {
        self.0.below.sync()
    }

    fn bytes(&self) -> std::io::Result<u64> {
        self.0.below.bytes()
    }

    fn reserve(&self, bytes: u64) -> std::io::Result<()> {
        self.0.below.reserve(bytes)
    }
}

/// A store whose pages from 1000 on begin with their numbers, with a minimal cache.
fn filled(medium: &Shown) -> SharedPages {
    let mut options = small();
    options.cache = 0;
    let pages = SharedPages::on(Box::new(medium.clone()), &options).expect("a store");
    let bytes = |at: u32| page(&u64::from(1000 + at).to_le_bytes().repeat(100));
    let all = (0..PAGES).map(|at| (Lpn(at), bytes(at))).collect();
    let turn = pages.turn().expect("it may write");
    turn.commit(all).expect("room").wait().expect("durable");
    pages
}

#[test]
fn a_damaged_page_is_an_error_and_the_others_can_be_read() {
    let medium = Shown::default();
    let pages = filled(&medium);
    medium.0.damaged.set(1007).expect("once");
    let is_lost = |error| {
        let lost = StoreError::Device(DeviceError::Unreadable(Lpn(7)));
        format!("{error:?}") == format!("{lost:?}")
    };
    let snapshot = pages.snapshot().expect("seal has them");
    assert!(snapshot.read(Lpn(7)).is_err_and(is_lost));
    assert!(snapshot.read_many(&[Lpn(6), Lpn(7)]).is_err());
    let turn = pages.turn().expect("it may write");
    assert!(turn.read(Lpn(7)).is_err_and(is_lost));
    for at in (0..PAGES).filter(|&at| at != 7) {
        let found = snapshot.read(Lpn(at)).expect("it is whole");
        assert_eq!(
            number(&found.expect("it was written")),
            u64::from(1000 + at)
        );
        assert!(turn.read(Lpn(at)).is_ok_and(|found| found.is_some()));
    }
}

#[test]
fn who_waits_for_the_medium_holds_up_no_other_reader() {
    let medium = Shown::default();
    let pages = filled(&medium);
    medium.0.waits.set(1005).expect("once");
    std::thread::scope(|scope| {
        let snapshot = pages.snapshot().expect("seal has them");
        scope.spawn(move || snapshot.read(Lpn(5)).expect("it is whole"));
        while !medium.0.is_waiting.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let began = Instant::now();
        let snapshot = pages.snapshot().expect("seal has them");
        assert!(snapshot.read(Lpn(6)).is_ok_and(|found| found.is_some()));
        assert!(began.elapsed() < Duration::from_secs(5), "it waited");
    });
}
