//! A history on a device that is determined by its seed, so that the commits of a machine before a
//! power loss can be verified later without any log.
//!
//! Commit `n` writes a few pages drawn from the seed and `n`, and `n` itself to page 0. After a
//! restart, page 0 tells the number of commits, and repeating the draws tells the required contents
//! of each page. Between commits, transactions write to the same pages and are rolled back: their
//! data must never be read.

use flagstone::commit::{Device, DeviceError};
use flagstone::units::{Lpn, Nanos};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::fmt;

/// Parameters of a history, except its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Witness {
    /// Seed of all draws.
    pub seed: u64,
    /// Number of pages that a commit writes besides page 0.
    pub pages_per_commit: u32,
    /// Pages from 1 to this one are written.
    pub span: u32,
    /// Each commit whose number is a multiple of this is preceded by a transaction that is rolled
    /// back; 0 for none. Does not affect the required contents.
    pub roll_back_every: u64,
}

/// The difference between a device's contents and the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction(pub String);

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Witness {
    /// The pages of commit `n`, without page 0.
    fn pages_of(&self, n: u64) -> Vec<u32> {
        let mut dice = Pcg64Mcg::seed_from_u64(self.seed ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut pages: Vec<u32> = (0..self.pages_per_commit)
            .map(|_| dice.random_range(1..=self.span))
            .collect();
        pages.sort_unstable();
        pages.dedup();
        pages
    }

    /// The bytes that commit `n` writes to a page: `n`, the page, and bytes drawn from both.
    fn bytes_of(&self, n: u64, page: u32, page_bytes: u32) -> Vec<u8> {
        let mark = n.rotate_left(32) ^ u64::from(page);
        let mut dice =
            Pcg64Mcg::seed_from_u64(self.seed ^ mark.wrapping_mul(0xd6e8_feb8_6659_fd93));
        // Page 0 begins with the settings, to detect a check with different ones.
        let head = [self.seed, n, self.span.into(), self.pages_per_commit.into()];
        let mut bytes: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
        let longest = page_bytes as usize;
        let len = dice.random_range(bytes.len()..=longest);
        while bytes.len() < len {
            bytes.extend_from_slice(&dice.random::<u64>().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    /// The number of commits according to the device's page 0.
    fn count(
        &self,
        device: &mut Device,
        now: Nanos,
    ) -> Result<Result<u64, Contradiction>, DeviceError> {
        let page_bytes = device.geometry().page_bytes;
        let bytes = match device.read(now, None, Lpn(0)) {
            Ok((_, Some(bytes))) => bytes,
            Ok((_, None)) => return Ok(Ok(0)),
            Err(DeviceError::Unreadable(_)) => return contradiction("page 0 cannot be read"),
            Err(error) => return Err(error),
        };
        let Some(word) = bytes.get(8..16).and_then(|word| word.try_into().ok()) else {
            return contradiction("page 0 is none of this history");
        };
        let n = u64::from_le_bytes(word);
        if bytes == self.bytes_of(n, 0, page_bytes) {
            Ok(Ok(n))
        } else {
            contradiction(
                "page 0 was not written by this history: use the same --seed, --span and --pages \
                 as for `load`",
            )
        }
    }

    /// Makes further commits, and calls `acknowledge` with the number of each when it is durable.
    /// Returns the number of the last one.
    ///
    /// # Errors
    /// The device holds another history, refuses a request, or cannot continue.
    pub fn load(
        &self,
        device: &mut Device,
        commits: u64,
        acknowledge: &mut dyn FnMut(u64),
    ) -> Result<Result<u64, Contradiction>, DeviceError> {
        let mut now = device.recovered_at();
        let page_bytes = device.geometry().page_bytes;
        let last = match self.count(device, now)? {
            Ok(last) => last,
            Err(violation) => return Ok(Err(violation)),
        };
        for n in last + 1..=last.saturating_add(commits) {
            if self.roll_back_every > 0 && n.is_multiple_of(self.roll_back_every) {
                let tx = device.begin(now)?;
                // Contents of a commit that never happens.
                for page in self.pages_of(!n) {
                    let bytes = self.bytes_of(!n, page, page_bytes);
                    now = device.write(now, tx, Lpn(page), &bytes)?.next.max(now);
                }
                now = device.abort(now, tx)?.max(now);
            }
            let tx = device.begin(now)?;
            for page in [0].into_iter().chain(self.pages_of(n)) {
                let bytes = self.bytes_of(n, page, page_bytes);
                now = device.write(now, tx, Lpn(page), &bytes)?.next.max(now);
            }
            now = match device.commit(now, tx)? {
                Some(done) => done.max(now),
                None => {
                    let flushed = device.acknowledged(now, true)?;
                    flushed.iter().fold(now, |now, &(_, done)| now.max(done))
                }
            };
            acknowledge(n);
        }
        Ok(Ok(last.saturating_add(commits)))
    }

    /// Compares a device with the history: it must hold a whole number of commits, at least
    /// `acknowledged`, and nothing else. Returns their number.
    ///
    /// # Errors
    /// The device cannot continue. Wrong contents are a violation.
    pub fn verify(
        &self,
        device: &mut Device,
        acknowledged: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Result<u64, Contradiction>, DeviceError> {
        let now = device.recovered_at();
        let page_bytes = device.geometry().page_bytes;
        let n = match self.count(device, now)? {
            Ok(n) => n,
            Err(violation) => return Ok(Err(violation)),
        };
        if n < acknowledged {
            return contradiction(format!(
                "{acknowledged} commits were acknowledged, and {n} are there"
            ));
        }
        let mut writer = vec![0; self.span as usize + 1];
        for n in 1..=n {
            writer[0] = n;
            for page in self.pages_of(n) {
                writer[page as usize] = n;
            }
        }
        for page in 0..=self.span {
            progress(1);
            let found = match device.read(now, None, Lpn(page)) {
                Ok((_, found)) => found,
                Err(DeviceError::Unreadable(_)) => {
                    return contradiction(format!("page {page} cannot be read"));
                }
                Err(error) => return Err(error),
            };
            let by = writer[page as usize];
            let wanted = (by > 0).then(|| self.bytes_of(by, page, page_bytes));
            if found != wanted.as_deref() {
                let has = found.and_then(|bytes| bytes.get(8..16)?.try_into().ok());
                let has = has.map_or("nothing of a commit".to_string(), |word| {
                    format!("what {} wrote", u64::from_le_bytes(word))
                });
                return contradiction(format!(
                    "of {n} commits, {by} was the last to write page {page}, which holds {has}"
                ));
            }
        }
        Ok(Ok(n))
    }
}

fn contradiction<T>(what: impl Into<String>) -> Result<Result<T, Contradiction>, DeviceError> {
    Ok(Err(Contradiction(what.into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagstone::commit::{Kind, Options};
    use flagstone::ftl::Config;
    use flagstone::nand::{Chip, Cut, Flash, Geometry, PowerCut, Shared, Timing};

    const WITNESS: Witness = Witness {
        seed: 7,
        pages_per_commit: 6,
        span: 200,
        // For a protocol without transactions, the cuts alone must find violations.
        roll_back_every: 0,
    };

    fn open(kind: Kind, flash: Box<dyn Flash>) -> Device {
        let mut config = Config::default();
        config.over_provision = 0.4;
        Device::open(flash, kind, config, &Options::default(), Nanos::ZERO).expect("it suits")
    }

    /// Cuts at various operations. Returns the first violation.
    fn cut(kind: Kind, witness: Witness) -> Option<Contradiction> {
        for dice in 0..40 {
            let geometry = Geometry {
                blocks_per_plane: 24,
                pages_per_block: 8,
                ..Geometry::default()
            };
            let chip = Chip::new(geometry, Timing::default(), 64);
            let (at, torn) = (500 + dice * 7, false);
            let cut = PowerCut::new(chip).arm(Cut { at, dice, torn });
            let flash = Shared::new(cut);
            let mut device = open(kind, Box::new(flash.clone()));
            let mut acknowledged = 0;
            let loaded = witness.load(&mut device, 500, &mut |n| acknowledged = n);
            assert!(loaded.is_err(), "the cut comes");
            drop(device);
            let mut device = open(kind, Box::new(flash.take().into_chip()));
            let verified = witness.verify(&mut device, acknowledged, &mut |_| {});
            if let Err(found) = verified.expect("no cut") {
                return Some(found);
            }
        }
        None
    }

    #[test]
    fn a_transactional_device_keeps_its_history_and_one_without_does_not() {
        let roll_back_every = 5;
        let rolls_back = Witness {
            roll_back_every,
            ..WITNESS
        };
        assert_eq!(cut(Kind::Seal, rolls_back), None);
        let torn = cut(Kind::Plain, WITNESS).expect("plain writes pages one by one");
        assert!(torn.0.contains("was the last to write"), "{torn}");
    }
}
