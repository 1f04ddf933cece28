//! Synthetic workloads: which pages transactions read and write, drawn from a seed.
//!
//! A *request* reads or writes one page. A transaction is [`Workload::pages_per_transaction`]
//! requests, the last one of a run what is left of them; the pages that it writes are distinct.
//! Equal workloads draw equal requests on every machine:
//!
//! ```text
//!   x          the next 64 bits of Pcg64Mcg, seeded with `SeedableRng::seed_from_u64`
//!   read?      x >> 32 < round(read_share * 2^32); no number is drawn for a share of 0 or 1
//!   uniform    page = x * pages >> 64
//!   zipf:T     rank r from 1 to pages with a probability in proportion to 1 / r^T,
//!              page = (r - 1) * stride mod pages
//!   a page that the transaction has written already is drawn again, and after 64 times the next
//!   page up that it has not written is taken
//! ```
//!
//! The stride is the first number from 0.618 * pages up that has no divisor in common with `pages`:
//! each rank is one page, and hot pages lie far apart. It does not depend on the seed, so that a
//! device warmed up with one seed has the hot pages of another.

mod transaction;

pub use flagstone_host::Rid;
pub use transaction::{Access, PAYLOAD_BYTES, Transaction, Verb};

use flagstone::units::Lpn;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64Mcg;
use rustc_hash::FxHashSet as HashSet;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How pages are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pattern {
    /// All pages are equally likely.
    Uniform,
    /// Zipf's law: the page of rank r is drawn in proportion to `1 / r^theta`.
    Zipf {
        /// The exponent, from 0 (uniform); 0.99 is what YCSB uses.
        theta: f64,
    },
    /// Ascending pages, repeatedly, in this fraction of the transactions; all pages equally likely
    /// in the rest.
    Sequential {
        /// The fraction of sequential transactions, from 0 to 1.
        share: f64,
    },
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Uniform => f.write_str("uniform"),
            Pattern::Zipf { theta } => write!(f, "zipf:{theta}"),
            Pattern::Sequential { share: 1.0 } => f.write_str("sequential"),
            Pattern::Sequential { share } => write!(f, "sequential:{share}"),
        }
    }
}

impl FromStr for Pattern {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let unknown = || {
            WorkloadError(format!(
                "unknown workload {text:?}: use \"uniform\", \"zipf:THETA\" as in \"zipf:0.99\", \
                 \"sequential\", or \"sequential:SHARE\" as in \"sequential:0.3\" for this share of \
                 the transactions"
            ))
        };
        match text.split_once(':') {
            None if text == "uniform" => Ok(Pattern::Uniform),
            Some(("zipf", theta)) => {
                let theta = theta.parse().map_err(|_| unknown())?;
                check_theta(theta)?;
                Ok(Pattern::Zipf { theta })
            }
            None if text == "sequential" => Ok(Pattern::Sequential { share: 1.0 }),
            Some(("sequential", share)) => match share.parse() {
                Ok(share) if (0.0..=1.0).contains(&share) => Ok(Pattern::Sequential { share }),
                _ => Err(unknown()),
            },
            _ => Err(unknown()),
        }
    }
}

/// A workload with invalid parameters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WorkloadError(pub String);

fn check_theta(theta: f64) -> Result<(), WorkloadError> {
    if (0.0..=10.0).contains(&theta) {
        Ok(())
    } else {
        Err(WorkloadError(format!(
            "the exponent of zipf is {theta}, it must be from 0 to 10"
        )))
    }
}

/// Parameters of a workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Workload {
    /// How pages are drawn.
    pub pattern: Pattern,
    /// Number of logical pages to draw from: the first ones of the device.
    pub pages: u32,
    /// Total number of requests.
    pub requests: u64,
    /// Fraction of the requests that read.
    pub read_share: f64,
    /// Requests per transaction.
    pub pages_per_transaction: u32,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// The parameters of a [`Workload`] that users choose, besides its pattern. The fields are keys of
/// experiment files; all have defaults.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Drawn {
    /// Requests of the workload [default: 200000].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Fraction of the requests that read [default: 0].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_share: Option<f64>,
    /// Requests per transaction [default: 8].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages_per_transaction: Option<u32>,
}

impl Drawn {
    /// Number of requests of the workload.
    pub fn requests(&self) -> u64 {
        self.requests.unwrap_or(200_000)
    }

    /// The workload over the filled fraction of `pages` pages; over all of them if none is filled.
    pub fn over(&self, pattern: Pattern, pages: u32, fill: f64, seed: u64) -> Workload {
        let filled = (f64::from(pages) * fill) as u32;
        Workload {
            pattern,
            pages: if filled == 0 { pages } else { filled },
            requests: self.requests(),
            read_share: self.read_share.unwrap_or(0.0),
            pages_per_transaction: self.pages_per_transaction.unwrap_or(8),
            seed,
        }
    }

    /// The keys, and whether each is given.
    pub fn given(&self) -> [(&'static str, bool); 3] {
        let Drawn {
            requests,
            read_share,
            pages_per_transaction,
        } = self;
        [
            ("requests", requests.is_some()),
            ("read_share", read_share.is_some()),
            ("pages_per_transaction", pages_per_transaction.is_some()),
        ]
    }
}

impl Workload {
    /// Transactions of one write each, drawn uniformly.
    pub fn uniform_writes(pages: u32, requests: u64, seed: u64) -> Workload {
        Workload {
            pattern: Pattern::Uniform,
            pages,
            requests,
            read_share: 0.0,
            pages_per_transaction: 1,
            seed,
        }
    }

    /// Begins to draw transactions.
    ///
    /// # Errors
    /// Names an invalid parameter and its valid values.
    pub fn transactions(&self) -> Result<Transactions, WorkloadError> {
        let fail = |what: String| Err(WorkloadError(what));
        if self.pages == 0 {
            return fail("the workload has no pages to draw from".into());
        }
        if !(0.0..=1.0).contains(&self.read_share) {
            return fail(format!(
                "the read share is {}, it must be from 0 to 1",
                self.read_share
            ));
        }
        let size = self.pages_per_transaction;
        if size == 0 || size > self.pages {
            return fail(format!(
                "{size} pages a transaction: it must be from 1 to {}, the pages of the device",
                self.pages
            ));
        }
        let ranks = match self.pattern {
            Pattern::Uniform | Pattern::Sequential { .. } => None,
            Pattern::Zipf { theta } => {
                check_theta(theta)?;
                let zipf = Zipf::new(f64::from(self.pages), theta);
                Some(zipf.map_err(|error| WorkloadError(error.to_string()))?)
            }
        };
        let in_order = match self.pattern {
            Pattern::Sequential { share } => share,
            Pattern::Uniform | Pattern::Zipf { .. } => 0.0,
        };
        Ok(Transactions {
            in_order_below: below(in_order),
            next: None,
            after: 0,
            rng: Pcg64Mcg::seed_from_u64(self.seed),
            ranks,
            pages: self.pages,
            stride: stride(self.pages),
            left: self.requests,
            read_below: below(self.read_share),
            size,
            requests: Vec::with_capacity(size as usize),
            written: HashSet::default(),
        })
    }
}

/// The threshold that 32 random bits are below with probability `share`.
fn below(share: f64) -> u64 {
    (share * 2f64.powi(32)).round() as u64
}

/// A read or write of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Reads a page.
    Read(Lpn),
    /// Writes a page.
    Write(Lpn),
}

/// Draws transactions; see [`Transactions::advance`].
#[derive(Debug, Clone)]
pub struct Transactions {
    rng: Pcg64Mcg,
    ranks: Option<Zipf<f64>>,
    pages: u32,
    stride: u32,
    left: u64,
    read_below: u64,
    in_order_below: u64,
    /// The next page for a sequential transaction, and the end of these transactions' pages.
    next: Option<u32>,
    after: u32,
    size: u32,
    requests: Vec<Request>,
    /// Pages written by a transaction with too many requests for a linear search.
    written: HashSet<Lpn>,
}

/// Up to this number of requests, a transaction is searched linearly for a page.
const FEW: usize = 32;
/// Draws of already written pages, before the next unwritten page is taken instead.
const DRAWS: u32 = 64;

impl Transactions {
    /// Draws the next transaction, in the order of its requests; `None` when all requests have been
    /// drawn. The slice is reused: it is valid until the next call.
    #[inline]
    pub fn advance(&mut self) -> Option<&[Request]> {
        if self.left == 0 {
            return None;
        }
        let size = u64::from(self.size).min(self.left);
        self.left -= size;
        self.requests.clear();
        self.written.clear();
        let is_in_order = self.happens(self.in_order_below);
        self.next = is_in_order.then_some(self.after);
        for _ in 0..size {
            let request = if self.happens(self.read_below) {
                Request::Read(self.draw())
            } else {
                Request::Write(self.draw_unwritten())
            };
            self.requests.push(request);
        }
        self.after = self.next.unwrap_or(self.after);
        Some(&self.requests)
    }

    /// Requests not yet drawn.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Returns `true` with the probability whose threshold is `below`.
    #[inline]
    fn happens(&mut self, below: u64) -> bool {
        match below {
            0 => false,
            share if share >> 32 != 0 => true,
            share => self.rng.next_u64() >> 32 < share,
        }
    }

    /// Draws a page: the next one in order if the transaction is sequential, otherwise by the
    /// pattern.
    #[inline]
    fn draw(&mut self) -> Lpn {
        if let Some(page) = &mut self.next {
            let at = Lpn(*page);
            *page = (*page + 1) % self.pages;
            return at;
        }
        match &self.ranks {
            None => {
                let product = u128::from(self.rng.next_u64()) * u128::from(self.pages);
                Lpn((product >> 64) as u32)
            }
            Some(ranks) => {
                let rank = ranks.sample(&mut self.rng) as u64;
                let rank = rank.clamp(1, self.pages.into()) - 1;
                Lpn((rank * u64::from(self.stride) % u64::from(self.pages)) as u32)
            }
        }
    }

    /// Draws a page that the transaction has not written yet. After [`DRAWS`] draws takes the next
    /// such page, so that the search ends.
    #[inline]
    fn draw_unwritten(&mut self) -> Lpn {
        let mut page = self.draw();
        if self.size > 1 {
            let mut draws = 1;
            while self.is_written(page) {
                page = if draws < DRAWS {
                    self.draw()
                } else {
                    Lpn((page.0 + 1) % self.pages)
                };
                draws += 1;
            }
            if self.size as usize > FEW {
                self.written.insert(page);
            }
        }
        page
    }

    fn is_written(&self, page: Lpn) -> bool {
        if self.size as usize > FEW {
            self.written.contains(&page)
        } else {
            self.requests.contains(&Request::Write(page))
        }
    }
}

fn stride(pages: u32) -> u32 {
    let coprime = |candidate: &u32| {
        let (mut a, mut b) = (pages, *candidate);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a == 1
    };
    let first = ((f64::from(pages) * 0.618_033_988_75) as u32).max(1);
    (first..=pages)
        .find(coprime)
        .expect("1 is coprime with everything, and pages - 1 with every other pages")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(workload: &Workload) -> Vec<Vec<Request>> {
        let mut transactions = workload.transactions().unwrap();
        let mut all = Vec::new();
        while let Some(requests) = transactions.advance() {
            all.push(requests.to_vec());
        }
        all
    }

    #[test]
    fn equal_seeds_draw_equal_requests_and_others_do_not() {
        let workload = Workload {
            pattern: Pattern::Zipf { theta: 0.99 },
            pages_per_transaction: 5,
            read_share: 0.3,
            ..Workload::uniform_writes(1000, 4321, 7)
        };
        let all = drawn(&workload);
        assert_eq!(all, drawn(&workload));
        assert_ne!(
            all,
            drawn(&Workload {
                seed: 8,
                ..workload
            })
        );
        assert_eq!(all.iter().map(Vec::len).sum::<usize>(), 4321);
        assert_eq!(all.last().unwrap().len(), 1);
    }

    #[test]
    fn pages_come_in_order_in_the_share_of_transactions_that_is_asked_for() {
        let workload = |share| Workload {
            pattern: Pattern::Sequential { share },
            pages_per_transaction: 4,
            ..Workload::uniform_writes(10, 4_000, 7)
        };
        let all = drawn(&workload(1.0));
        let pages = all.iter().flatten().zip((0..10).cycle());
        assert!(
            pages
                .clone()
                .all(|(request, page)| *request == Request::Write(Lpn(page)))
        );
        // By chance four of ten pages are in order once in 504 times.
        let in_order = |all: &[Vec<Request>]| {
            let page = |request: &Request| match *request {
                Request::Read(at) | Request::Write(at) => at.0,
            };
            let is = |pair: &[Request]| page(&pair[1]) == (page(&pair[0]) + 1) % 10;
            all.iter()
                .filter(|requests| requests.windows(2).all(is))
                .count()
        };
        let half = in_order(&drawn(&workload(0.5)));
        assert!((450..=560).contains(&half), "{half} of 1000");
        assert!(in_order(&drawn(&workload(0.0))) < 15);
        for text in ["sequential", "sequential:0.25"] {
            assert_eq!(text.parse::<Pattern>().unwrap().to_string(), text);
        }
        assert!("sequential:2".parse::<Pattern>().is_err());
    }

    #[test]
    fn a_transaction_writes_each_page_once_even_if_it_writes_all() {
        for pages_per_transaction in [3, 40] {
            let workload = Workload {
                pattern: Pattern::Zipf { theta: 1.2 },
                pages_per_transaction,
                ..Workload::uniform_writes(pages_per_transaction, 400, 1)
            };
            for requests in drawn(&workload) {
                let mut pages: Vec<_> = requests.iter().map(|r| format!("{r:?}")).collect();
                pages.sort();
                pages.dedup();
                assert_eq!(pages.len(), requests.len());
            }
        }
    }

    #[test]
    fn zipf_ranks_have_their_probabilities_and_hot_pages_lie_apart() {
        let pages = 100;
        let workload = Workload {
            pattern: Pattern::Zipf { theta: 1.0 },
            ..Workload::uniform_writes(pages, 200_000, 3)
        };
        let mut counts = vec![0u32; pages as usize];
        for requests in drawn(&workload) {
            let [Request::Write(page)] = requests[..] else {
                panic!("one write each")
            };
            counts[page.index()] += 1;
        }
        let harmonic: f64 = (1..=pages).map(|r| 1.0 / f64::from(r)).sum();
        let stride = stride(pages);
        for rank in [1u32, 2, 10, 50] {
            let expected = 200_000.0 / harmonic / f64::from(rank);
            let page = u64::from(rank - 1) * u64::from(stride) % u64::from(pages);
            let found = f64::from(counts[page as usize]);
            assert!(
                (found - expected).abs() < 5.0 * expected.sqrt(),
                "rank {rank}: {found} for {expected}"
            );
        }
    }

    #[test]
    fn the_share_of_reads_is_as_asked() {
        let workload = Workload {
            read_share: 0.3,
            ..Workload::uniform_writes(10, 100_000, 3)
        };
        let reads = drawn(&workload)
            .iter()
            .filter(|requests| matches!(requests[..], [Request::Read(_)]))
            .count();
        assert!((29_500..30_500).contains(&reads), "{reads}");
    }

    #[test]
    fn nonsense_is_refused_with_what_to_do() {
        let refuse = |text: &str| text.parse::<Pattern>().unwrap_err().0;
        assert!(refuse("zipf").contains("zipf:THETA"));
        assert!(refuse("zipf:a lot").contains("zipf:THETA"));
        assert!(refuse("zipf:-1").contains("from 0 to 10"));
        assert_eq!(
            "zipf:0.9".parse::<Pattern>().unwrap().to_string(),
            "zipf:0.9"
        );
        let workload = Workload::uniform_writes(4, 1, 0);
        for wrong in [
            Workload {
                pages: 0,
                ..workload
            },
            Workload {
                read_share: f64::NAN,
                ..workload
            },
            Workload {
                pages_per_transaction: 5,
                ..workload
            },
        ] {
            assert!(wrong.transactions().is_err());
        }
    }
}
