//! The devices of the papers' evaluations, and a small one for quick runs. Each is a device file in
//! the folder beside this module, as users write them. To add one, add a file and a line.
//!
//! Parts: K9F8G08UXM is 4096+128-byte SLC pages, 64 a block. K9WAG08U1A is a stack of K9K8G08U0A
//! dies: 2048+64-byte SLC pages, 64 a block. K9GAG08U0M is MLC: 4096+128-byte pages, 128 a block of
//! 512 KiB, 4096 blocks a die in two planes, pages of a block in ascending order only, random read
//! 60 us at most, page program 800 us and block erase 1.5 ms typically.

use super::DeviceSpec;
use std::sync::LazyLock;

/// The default preset of commands.
pub const DEFAULT: &str = "small";

const FILES: [&str; 9] = [
    include_str!("presets/small.toml"),
    include_str!("presets/lighttx.toml"),
    include_str!("presets/flagcommit-slc.toml"),
    include_str!("presets/mixsl-mlc.toml"),
    include_str!("presets/lazybtree.toml"),
    include_str!("presets/sal-low-end.toml"),
    include_str!("presets/sal-high-end.toml"),
    include_str!("presets/tlc.toml"),
    include_str!("presets/worn.toml"),
];

/// All presets.
pub fn presets() -> &'static [DeviceSpec] {
    static ALL: LazyLock<Vec<DeviceSpec>> = LazyLock::new(|| {
        let read = |text: &&str| DeviceSpec::parse(text, "").expect("a test has read all presets");
        FILES.iter().map(read).collect()
    });
    &ALL
}

/// The preset with this name.
pub(super) fn preset(name: &str) -> Option<&'static DeviceSpec> {
    presets().iter().find(|spec| spec.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_is_shown_as_its_file() {
        for (spec, text) in presets().iter().zip(FILES) {
            assert_eq!(spec.to_toml(), text, "{}", spec.name);
        }
    }
}
