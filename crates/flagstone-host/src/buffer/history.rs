//! Test helper: random histories on two pools that should choose the same victims.
//!
//! One pool uses the policy, the other a naive model that implements the same trait with vectors
//! and searches. A mirror tracks the expected state of both pools, naively as well.

use super::Policy;
use super::Pool;
use flagstone::dice::Dice;
use flagstone::units::Lpn;
use std::collections::BTreeMap;

/// Pool sizes in frames.
pub(super) const FRAMES: [usize; 6] = [1, 2, 3, 10, 33, 100];

/// Plays random histories on pools of several sizes. `pair` makes a policy and its model.
pub(super) fn assert_same(pair: &dyn Fn(usize) -> [Box<dyn Policy>; 2]) {
    for frames in FRAMES {
        for seed in 0..6 {
            let difference = play(seed, frames, pair(frames));
            assert_eq!(difference, None, "seed {seed}, {frames} frames");
        }
    }
}

/// Control: a wrong model must differ from the policy.
pub(super) fn assert_different(pair: &dyn Fn(usize) -> [Box<dyn Policy>; 2]) {
    let is_found = |&frames: &usize| (0..6).any(|seed| play(seed, frames, pair(frames)).is_some());
    let found = FRAMES.iter().filter(|frames| is_found(frames)).count();
    assert!(found >= 2, "a wrong model passes: {found} sizes differ");
}

#[derive(Debug, Clone, Copy, Default)]
struct Mirrored {
    dirty: bool,
    pins: u32,
}

struct Game {
    dice: Dice,
    pools: [Pool<u64>; 2],
    mirror: BTreeMap<Lpn, Mirrored>,
    step: u64,
    scan: u32,
}

/// Returns the first step at which the pools choose different victims. Panics on any other error.
fn play(seed: u64, frames: usize, policies: [Box<dyn Policy>; 2]) -> Option<u64> {
    let mut game = Game {
        dice: Dice(seed),
        pools: policies.map(|policy| Pool::with_policy(frames, policy)),
        mirror: BTreeMap::new(),
        step: 0,
        scan: 0,
    };
    while game.step < 3_000 {
        game.step += 1;
        if !game.go() {
            return Some(game.step);
        }
        for pool in &game.pools {
            assert_eq!(pool.check(), Ok(()), "seed {seed}, step {}", game.step);
        }
    }
    let [ours, naive] = &game.pools;
    assert_eq!(ours.stats().accesses(), naive.stats().accesses());
    assert_eq!(ours.stats().evicted(), naive.stats().evicted());
    for pool in &game.pools {
        let stats = pool.stats();
        let evicted = stats.evicted().all();
        assert!(evicted > 0 && stats.passed_pinned > 0 && stats.passed_refused > 0);
        assert!(stats.hits() > 0 && stats.dropped > 0);
        assert!(stats.evicted().clean > 0 && stats.evicted().dirty > 0);
    }
    None
}

impl Game {
    /// Runs one step. Returns whether the pools agree.
    fn go(&mut self) -> bool {
        let some = self.some();
        match (self.dice.pick(40), some) {
            (0 | 1, Some((at, held))) => {
                self.held(at).dirty = !held.dirty;
                self.both(|pool| pool.set_dirty(at, !held.dirty));
            }
            (2, Some((at, _))) => {
                self.held(at).pins += 1;
                self.both(|pool| pool.pin(at));
            }
            (3 | 4, Some((at, held))) if held.pins > 0 => {
                self.held(at).pins -= 1;
                self.both(|pool| pool.unpin(at));
            }
            (5, Some((at, held))) if held.pins == 0 => {
                self.mirror.remove(&at);
                self.both(|pool| assert!(pool.remove(at).is_some()));
            }
            _ => return self.access(),
        }
        true
    }

    /// Accesses a random page, and makes room for it if necessary. Returns whether the pools agree.
    fn access(&mut self) -> bool {
        let frames = self.pools[0].capacity() as u32;
        let at = if self.dice.one_in(3) {
            self.scan = (self.scan + 1) % (frames * 4);
            Lpn(self.scan)
        } else {
            Lpn(self.dice.skewed(frames * 3))
        };
        let write = self.dice.one_in(3);
        let is_there = self.mirror.contains_key(&at);
        self.both(|pool| {
            let value = pool.get(at, write).copied();
            assert_eq!(value, is_there.then_some(u64::from(at.0)));
        });
        if is_there {
            self.held(at).dirty |= write;
        } else {
            while self.mirror.len() == frames as usize {
                match self.choose() {
                    [Some(a), Some(b)] if a == b => {
                        if self.dice.one_in(2) {
                            self.held(a).dirty = false;
                            self.both(|pool| pool.set_dirty(a, false));
                        }
                        // The owner may abandon the choice, and ask again.
                        if !self.dice.one_in(10) {
                            let dirty = self.mirror.remove(&a).expect("chosen").dirty;
                            self.both(|pool| {
                                assert_eq!(pool.is_dirty(a), dirty);
                                let before = pool.stats().dropped;
                                pool.remove(a);
                                assert_eq!(pool.stats().dropped, before, "an eviction");
                            });
                        }
                    }
                    [None, None] => {
                        self.unpin_all();
                        return true;
                    }
                    _ => return false,
                }
            }
            let held = Mirrored {
                dirty: write,
                pins: 0,
            };
            self.mirror.insert(at, held);
            self.both(|pool| pool.insert(at, u64::from(at.0), write));
        }
        let mirrored = self.mirror.iter();
        let dirty: Vec<Lpn> = mirrored
            .filter_map(|(&at, held)| held.dirty.then_some(at))
            .collect();
        self.both(|pool| {
            let mut found: Vec<Lpn> = pool.dirty().map(|(at, _)| at).collect();
            found.sort();
            assert_eq!(found, dirty);
        });
        true
    }

    /// The victim of each pool. No pool may choose a pinned or refused page, or none if there is an
    /// eligible one.
    fn choose(&mut self) -> [Option<Lpn>; 2] {
        let (mirror, epoch) = (&self.mirror, self.step / 64);
        let refused = |at: Lpn| {
            let every = if mirror[&at].dirty { 3 } else { 12 };
            Dice(epoch << 32 | u64::from(at.0)).one_in(every)
        };
        let allowed = |at: Lpn| mirror[&at].pins == 0 && !refused(at);
        let there_is_one = mirror.keys().any(|&at| allowed(at));
        self.pools.each_mut().map(|pool| {
            let chosen = pool.victim(&mut |at, value| {
                assert_eq!(u64::from(at.0), *value);
                assert_eq!(mirror[&at].pins, 0, "a pinned page is not asked about");
                !refused(at)
            });
            assert_eq!(chosen.is_some(), there_is_one, "step {}", self.step);
            assert!(chosen.is_none_or(allowed), "a pinned or refused page");
            chosen
        })
    }

    fn unpin_all(&mut self) {
        for (&at, held) in &mut self.mirror {
            while held.pins > 0 {
                held.pins -= 1;
                for pool in &mut self.pools {
                    pool.unpin(at);
                }
            }
        }
    }

    fn some(&mut self) -> Option<(Lpn, Mirrored)> {
        let len = self.mirror.len() as u32;
        let nth = (len > 0).then(|| self.dice.pick(len))?;
        let (&at, &held) = self.mirror.iter().nth(nth as usize)?;
        Some((at, held))
    }

    fn held(&mut self, at: Lpn) -> &mut Mirrored {
        self.mirror.get_mut(&at).expect("it is there")
    }

    fn both(&mut self, mut act: impl FnMut(&mut Pool<u64>)) {
        for pool in &mut self.pools {
            act(pool);
        }
    }
}
