//! Other settings at an opening: those that a user may change between two starts. Settings that are
//! fixed by the format stay, and are refused otherwise: the protocol and its mode, the number of
//! log pages, `max_c`, and the fields of `ftl::Config` that say so.
//!
//! Each opening draws from the settings of the shape, with random numbers that depend on the run's
//! seed and on the number of the opening alone.

use super::run_id::RunId;
use super::scene::{Scene, set_mode, suits};
use super::{Below, Subject};
use flagstone::ftl::VictimPolicy;
use flagstone::settings::{Configurable, Settings};
use flagstone_host::buffer::PolicyKind;
use flagstone_host::{Granularity, Stack};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Probability that an opening draws a setting; otherwise it has the shape's.
const CHANGES: f64 = 0.5;

/// Settings of protocols and recovery managers that may change, and the values drawn.
const VALUES: [(&str, &[&str]); 16] = [
    ("zone_blocks", &["0", "5", "6", "9", "12", "12"]),
    ("map_cache", &["0", "1", "2", "4", "8", "16"]),
    ("group", &["1", "2", "3", "5", "page-full"]),
    ("group_timeout_us", &["300", "900", "3000"]),
    ("keeps_obsolete", &["straddling", "all"]),
    ("linger", &["0", "1", "2", "3", "5", "planes"]),
    ("undecided", &["0", "1", "2", "4", "8"]),
    ("trims", &["0", "1", "2", "3", "5"]),
    ("checkpoint", &["0", "1", "12", "30"]),
    (
        "log_buffer_bytes",
        &["0", "80", "300", "700", "1500", "3000"],
    ),
    ("checkpoint_every", &["0", "1", "2", "3", "5"]),
    ("group_wait_us", &["0", "500"]),
    ("log_padded", &["false", "true"]),
    ("log_page_each", &["false", "true"]),
    ("flags_all", &["false", "true"]),
    ("flush_aborted", &["false", "true"]),
];

/// One of `values`.
fn any<T: Copy>(dice: &mut Pcg64Mcg, values: &[T]) -> T {
    values[dice.random_range(0..values.len())]
}

/// Draws values for the settings that `owner` has.
fn draw(settings: &mut Settings, owner: &impl Configurable, dice: &mut Pcg64Mcg) {
    for (name, values) in VALUES {
        if owner.has(name) && dice.random_bool(CHANGES) {
            settings.set(name, any(dice, values));
        }
    }
}

impl Scene {
    /// The scene with the settings of opening number `opening` of a run.
    pub(super) fn reopened(&self, id: &RunId, opening: u64) -> Scene {
        let mut scene = self.clone();
        if self.shape.reopens {
            let mut dice = Pcg64Mcg::seed_from_u64(0x0be2_0000_0000_0000 ^ id.seed ^ opening << 32);
            scene.draw_device(id, &mut dice);
            if let Subject::Stack(stack) = self.subject {
                scene.draw_host(stack, &mut dice);
            }
        }
        scene
    }

    /// Draws the settings of the device.
    fn draw_device(&mut self, id: &RunId, dice: &mut Pcg64Mcg) {
        let config = &mut self.config;
        if dice.random_bool(CHANGES) {
            let margins = [0, 3, 16].map(|margin| VictimPolicy::WearAware { margin });
            config.victims = any(dice, &[&margins[..], &[VictimPolicy::Greedy]].concat());
        }
        if dice.random_bool(CHANGES) {
            config.static_wear_gap = any(dice, &[Some(0), Some(1), Some(2), Some(6), None]);
        }
        if dice.random_bool(CHANGES) {
            config.copies_stay = !config.copies_stay;
        }
        if self.subject.collects_in_steps() && dice.random_bool(CHANGES) {
            config.works_ahead = !config.works_ahead;
        }
        if self.shape.device.may_fill && dice.random_bool(CHANGES) {
            config.gc_threshold = any(dice, &[0.15, 0.2, 0.3, 0.5]);
            // The blocks kept for zones and failures stay free.
            let mut fuller = *config;
            let kept = self.blocks_kept * self.geometry.pages_per_block;
            fuller.logical_pages = config.logical_pages.map(|pages| pages + kept);
            if suits(self.subject, &self.host, &self.geometry, &fuller).is_err() {
                config.gc_threshold = 0.0;
            }
        }
        if let Some(kind) = self.subject.protocol() {
            draw(&mut self.options.settings, kind.info(), dice);
            set_mode(&id.base, kind, &mut self.options.settings);
        }
    }

    /// Draws the settings of the database.
    fn draw_host(&mut self, stack: Stack, dice: &mut Pcg64Mcg) {
        let (before, host) = (self.host.clone(), &mut self.host);
        if dice.random_bool(CHANGES) {
            host.frames = any(dice, &[2, 2, 3, 4, 6, 8]);
        }
        if dice.random_bool(CHANGES) {
            host.policy = any(dice, PolicyKind::ALL);
        }
        // A database that writes through has a device with room for that.
        host.write_through &= !dice.random_bool(CHANGES / 2.0);
        if matches!(stack, Stack::Force(_)) {
            host.steal = dice.random_bool(0.75);
        } else if dice.random_bool(CHANGES) {
            host.granularity = any(dice, &[None, Some(Granularity::Page)]);
        }
        draw(&mut host.settings, stack.manager(), dice);
        let least = host.log_pages_min(stack, self.geometry.page_bytes as usize);
        if least.expect("the settings are possible") > host.log_pages {
            // The log is too short for that many frames or a buffer of that size.
            host.frames = before.frames;
            let buffer = "log_buffer_bytes";
            let bytes = before.settings.text(stack.manager(), buffer);
            host.settings.set(buffer, bytes);
        }
    }

    /// The settings that an opening may change, with their values.
    pub(super) fn changeable(&self) -> Vec<(&str, String)> {
        let (config, host) = (&self.config, &self.host);
        let gap = config.static_wear_gap;
        let mut all = vec![
            ("victims", config.victims.to_string()),
            (
                "static_wear_gap",
                gap.map_or("off".into(), |gap| gap.to_string()),
            ),
            ("copies_stay", config.copies_stay.to_string()),
            ("works_ahead", config.works_ahead.to_string()),
            ("gc_threshold", config.gc_threshold.to_string()),
        ];
        let mut given: Vec<_> = self.options.settings.given().collect();
        if let Below::Stack(stack) = self.subject.below() {
            let unit = host.granularity.unwrap_or(stack.granularity());
            let unit = format!("{unit:?}");
            all.extend([
                ("frames", host.frames.to_string()),
                ("policy", host.policy.to_string()),
                ("write_through", host.write_through.to_string()),
                ("steal", host.steal.to_string()),
                ("granularity", unit.to_lowercase()),
            ]);
            given.extend(host.settings.given());
        }
        all.extend(
            given
                .into_iter()
                .map(|(name, value)| (name, value.to_string())),
        );
        all
    }

    /// The settings in which this scene differs from that of the opening `before`, as text.
    pub(super) fn changed(&self, before: &Scene) -> Option<String> {
        let before = before.changeable();
        let now = self.changeable().into_iter();
        let changed = now.filter(|setting| !before.contains(setting));
        let changed: Vec<String> = changed
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        (!changed.is_empty()).then(|| changed.join(", "))
    }
}
