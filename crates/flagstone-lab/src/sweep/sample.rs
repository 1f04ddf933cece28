//! Sobol samples: points that fill a cube of many dimensions evenly, from a seed.
//!
//! The sequence is that of Joe and Kuo with Owen's scrambling, as `sobol_burley` has it. A
//! scrambled sequence has no point at the corner of the cube, and another seed gives another sample
//! that is as even. A point is a function of its number, its dimension and the seed, and nothing is
//! kept.

/// Points of one sample, at most: so far the sequence is even.
pub const SAMPLE_MAX: u32 = 1 << 16;

/// Dimensions of one sample, at most.
pub(crate) const DIMENSIONS_MAX: usize = sobol_burley::NUM_DIMENSIONS as usize;

/// A coordinate of a point, from 0 to less than 1.
///
/// # Panics
/// A point of [`SAMPLE_MAX`] or more, a dimension that the sequence does not have.
pub fn unit(point: u32, dimension: usize, seed: u32) -> f64 {
    assert!(point < SAMPLE_MAX, "point {point} of a sample");
    let dimension = u32::try_from(dimension).expect("few dimensions");
    f64::from(sobol_burley::sample(point, dimension, seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_power_of_two_of_points_has_one_in_each_interval() {
        for seed in [1, 2] {
            for dimension in [0, 1, 7, 40] {
                let mut hit = [false; 64];
                for point in 0..64 {
                    hit[(unit(point, dimension, seed) * 64.0) as usize] = true;
                }
                assert!(hit.iter().all(|hit| *hit), "{dimension} {seed}");
            }
        }
        // The control: a sample that is drawn anew each time leaves some empty.
        let mut hit = [false; 64];
        for point in 0..64 {
            hit[(unit(0, 0, point) * 64.0) as usize] = true;
        }
        assert!(!hit.iter().all(|hit| *hit));
    }

    #[test]
    fn a_point_is_the_same_on_every_machine() {
        let point: Vec<f64> = (0..3).map(|dimension| unit(5, dimension, 1)).collect();
        assert_eq!(
            point,
            [0.2956409454345703, 0.15592944622039795, 0.4141831398010254]
        );
    }
}
