//! Pages that were torn by a cut, overwritten, and have their first contents again after the next
//! cut.
//!
//! After a cut that has torn a block's summary, a store writes the summary again in place. If both
//! have the same bytes, the sectors that land of the second write may be just those that the first
//! cut left out. So the first summary is complete after all. It is valid: the second one was not
//! durable, and nothing depended on it. A chip cannot do this by itself.

use super::sum;
use flagstone::nand::{Chip, Flash, PowerCut};
use flagstone::units::{Nanos, Ppn};
use flagstone_store::Glance;

/// Pages with such contents, with their data and spare areas.
#[derive(Debug, Default)]
pub(super) struct WholeAgain(Vec<(Ppn, Vec<u8>, Vec<u8>)>);

impl WholeAgain {
    /// Compares page `at`, which is intact on the medium, with its last program on the chip. If
    /// they differ, the page has its first contents again: records it, and returns `true`.
    pub(super) fn note(
        &mut self,
        power: &PowerCut,
        glance: &Glance,
        at: Ppn,
    ) -> Result<bool, String> {
        let contents = glance.contents(at);
        let contents = contents.map_err(|error| format!("page {at} cannot be read: {error}"))?;
        let [data, spare] = contents.ok_or_else(|| format!("page {at} is not whole"))?;
        let mut last = (
            vec![0; power.geometry().page_bytes as usize],
            vec![0; power.geometry().spare_bytes as usize],
        );
        let bytes = power.peek(at, &mut last.0, &mut last.1);
        let bytes = bytes.ok_or_else(|| format!("page {at} was not programmed on the chip"))?;
        let is_older = sum(&data, &spare) != sum(&last.0[..bytes], &last.1);
        if is_older {
            self.0.push((at, data, spare));
        }
        Ok(is_older)
    }

    /// Number of these pages.
    pub(super) fn pages(&self) -> u64 {
        self.0.len() as u64
    }

    /// The chip with the contents of these pages.
    pub(super) fn put_back(self, chip: Chip) -> Chip {
        let mut power = PowerCut::new(chip);
        for (at, data, spare) in self.0 {
            power.write_over(at);
            let put = power.program(Nanos::ZERO, at, &data, &spare);
            put.expect("the power is on, and the page blank");
        }
        power.into_chip()
    }
}
