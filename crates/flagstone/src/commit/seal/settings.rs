//! Settings of SEAL: number of waiting blocks, number of undecided blocks, length of trim lists.

use crate::commit::{Info, Options};
use crate::nand::Geometry;
use crate::settings::{BadSetting, Setting};

const PLANES: &str = "planes";

pub(super) const LINGER: Setting = Setting {
    name: "linger",
    default: PLANES,
    what: "maximum number of full blocks that wait for live transactions before they are sealed; \
           planes means as many as the device has planes",
};

pub(super) const UNDECIDED: Setting = Setting {
    name: "undecided",
    default: "0",
    what: "maximum number of blocks with pages whose commit is decided elsewhere, and of \
           transactions with such pages; if there are more of both, the oldest such block is \
           collected; 0 means 1/64 of the device, and at least 64",
};

pub(super) const TRIMS: Setting = Setting {
    name: "trims",
    default: "0",
    what: "maximum number of logical pages in one list of trims; 1 means one page per trim, 0 as \
           many as fit into a page",
};

/// Minimum of the default bound on undecided blocks.
const UNDECIDED_LEAST: u32 = 64;

/// Maximum number of full blocks that wait for their transactions.
pub(super) fn linger(
    info: &Info,
    geometry: &Geometry,
    options: &Options,
) -> Result<usize, BadSetting> {
    match options.settings.text(info, LINGER.name) {
        PLANES => Ok(geometry.planes() as usize),
        _ => options.settings.number(info, LINGER.name, 0, 1 << 20),
    }
}

/// Maximum number of undecided blocks, beyond which the oldest is collected.
pub(super) fn undecided(
    info: &Info,
    geometry: &Geometry,
    options: &Options,
) -> Result<usize, BadSetting> {
    let most = options.settings.number(info, UNDECIDED.name, 0, u32::MAX)?;
    Ok(match most {
        0 => (geometry.blocks() / 64).max(UNDECIDED_LEAST),
        most => most,
    } as usize)
}

/// Maximum number of logical pages in a list of trims.
pub(super) fn trims(info: &Info, options: &Options) -> Result<usize, BadSetting> {
    let most: usize = options.settings.number(info, TRIMS.name, 0, 1 << 20)?;
    Ok(if most == 0 { usize::MAX } else { most })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nand::small;

    #[test]
    fn linger_is_a_number_or_as_many_as_planes() {
        let geometry = small::GEOMETRY;
        let of = |value: &str| {
            let options = Options::default().with("linger", value);
            linger(&super::super::INFO, &geometry, &options)
        };
        assert_eq!(of("planes"), Ok(geometry.planes() as usize));
        assert_eq!(of("0"), Ok(0));
        assert!(
            of("some")
                .unwrap_err()
                .to_string()
                .contains("use a number from 0")
        );
    }
}
