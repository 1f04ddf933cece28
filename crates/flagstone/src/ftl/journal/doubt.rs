//! Validation of a root that another program may have written.

use super::image::RootImage;
use super::{Journal, NONE};
use crate::ftl::FtlError;
use crate::ftl::doubt::foreign;
use crate::nand::Geometry;
use crate::units::{Pbn, Ppn};

impl Journal {
    /// Checks that a root is possible on this device.
    pub(in crate::ftl) fn doubt_root(
        &self,
        geometry: &Geometry,
        image: &RootImage,
    ) -> Result<(), FtlError> {
        let (found, needed) = (image.directory.len(), self.directory.len());
        // After growth the table is larger than its root says, until the next checkpoint.
        if found > needed || (found < needed && image.pool.is_none()) {
            return foreign(format!(
                "the mapping table has {found} pages, this protocol and configuration need {needed}"
            ));
        }
        let is_beyond = |block: &&Pbn| block.0 >= geometry.blocks();
        if let Some(block) = image.bad.iter().find(is_beyond) {
            return foreign(format!("its root lists block {block}, which there is not"));
        }
        let mut named: Vec<u32> = image.directory.clone();
        named.retain(|&at| at != NONE);
        named.sort_unstable();
        let is_outside = |&&at: &&u32| {
            let is_page = at < geometry.pages();
            !is_page || self.place(geometry.block_of(Ppn(at))).is_none()
        };
        if let Some(at) = named.iter().find(is_outside) {
            return foreign(format!("it has a mapping page outside its area, {at}"));
        }
        if !named.is_sorted_by(|a, b| a < b) {
            return foreign("its root names a mapping page twice".into());
        }
        Ok(())
    }

    /// Checks a root's list of blocks for mapping pages and logs. Blocks beyond the device are
    /// those of a pending growth.
    pub(in crate::ftl) fn doubt_pool(
        &self,
        geometry: &Geometry,
        pool: &[Pbn],
    ) -> Result<(), FtlError> {
        let mut sorted = pool.to_vec();
        sorted.sort_unstable();
        let is_anchor = |block: &Pbn| self.anchors.iter().any(|it| it.block == *block);
        let end = geometry.blocks();
        let later = sorted.iter().filter(|block| block.0 >= end);
        let follow = later.zip(end..).all(|(block, next)| block.0 == next);
        if sorted.is_sorted_by(|a, b| a < b) && follow && !sorted.iter().any(is_anchor) {
            Ok(())
        } else {
            foreign("its root lists blocks for mapping pages that cannot be such".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftl::doubt::tests::{ftl, why};

    #[test]
    fn a_root_that_names_what_there_is_not_is_refused() {
        let ftl = ftl();
        let place = |index: usize| {
            let block = ftl.journal.pool[index].block;
            ftl.geometry.page(block, 0).0
        };
        let right = RootImage {
            directory: vec![NONE; ftl.journal.directory.len()],
            ..RootImage::default()
        };
        assert!(right.directory.len() >= 2, "the table has several pages");
        assert_eq!(ftl.journal.doubt_root(&ftl.geometry, &right), Ok(()));
        let with = |change: fn(&mut RootImage, [u32; 2])| {
            let mut image = right.clone();
            change(&mut image, [place(0), place(1)]);
            ftl.journal.doubt_root(&ftl.geometry, &image)
        };
        assert_eq!(
            with(|image, at| image.directory[..2].copy_from_slice(&at)),
            Ok(())
        );
        assert!(why(with(|image, _| image.bad.push(Pbn(9999)))).contains("block 9999"));
        assert!(why(with(|image, _| image.directory[0] = 1 << 30)).contains("outside its area"));
        assert!(why(with(|image, _| image.directory[0] = 1000)).contains("outside its area"));
        assert!(why(with(|image, at| image.directory[..2].fill(at[0]))).contains("twice"));
        assert!(why(with(|image, _| image.directory.truncate(1))).contains("pages"));
    }
}
