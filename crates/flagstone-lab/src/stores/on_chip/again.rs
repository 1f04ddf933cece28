//! Pages that a cut has torn, that were written over, and that hold after the next cut what they
//! held first.
//!
//! A store gives a block its summary again, in the same place, after a cut that has torn the one
//! before. What lands of that may be just what the first cut has left out, where both have the same
//! bytes. So the first summary is there after all. It is as true as it was: the second one was not
//! durable yet, and nothing was built on it. A chip cannot do that by itself.

use super::sum;
use flagstone::nand::{Chip, Flash, PowerCut};
use flagstone::units::{Nanos, Ppn};
use flagstone_store::Glance;

/// Such pages, with data and spare area.
#[derive(Debug, Default)]
pub(super) struct WholeAgain(Vec<(Ppn, Vec<u8>, Vec<u8>)>);

impl WholeAgain {
    /// Notes a page that is whole on the medium, if it does not hold what was programmed there
    /// last. Returns whether that is so.
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

    /// How many there are.
    pub(super) fn pages(&self) -> u64 {
        self.0.len() as u64
    }

    /// The chip with what these pages hold.
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
