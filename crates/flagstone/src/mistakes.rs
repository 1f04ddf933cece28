//! Deliberate mistakes that tests and campaigns must detect. No shipped build contains them.
//!
//! A campaign that finds nothing proves as much as its controls do: code that omits a rule must be
//! caught. Each family with such mistakes lists them in an enum (`Mistake`) in its folder. The code
//! of a rule asks `mistaken.is(Mistake::X)`.
//!
//! Without the feature `mistakes` of this crate a [`Mistaken`] is always empty and `is` is the
//! constant `false`, so the compiler drops the code of the mistake. The lab enables the feature,
//! and this crate's own tests have it. Stores, and SQLite on stores, are built without it.

use std::fmt;

/// The mistake to make, if this build supports mistakes and one is selected.
///
/// ```
/// use flagstone::commit::Mistake;
/// use flagstone::mistakes::Mistaken;
///
/// let right = Mistaken::default();
/// assert!(!right.is(Mistake::EvidenceDropped));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mistaken<M>(held::Held<M>);

/// Whether this build supports mistakes.
pub const COMPILED: bool = cfg!(any(test, feature = "mistakes"));

#[cfg(any(test, feature = "mistakes"))]
mod held {
    pub(super) type Held<M> = Option<M>;

    pub(super) const fn nothing<M>() -> Held<M> {
        None
    }

    #[inline]
    pub(super) fn hold<M>(made: Option<M>) -> Held<M> {
        made
    }

    #[inline]
    pub(super) fn made<M>(held: Held<M>) -> Option<M> {
        held
    }
}

#[cfg(not(any(test, feature = "mistakes")))]
mod held {
    pub(super) type Held<M> = std::marker::PhantomData<M>;

    pub(super) const fn nothing<M>() -> Held<M> {
        std::marker::PhantomData
    }

    #[inline]
    pub(super) fn hold<M>(_: Option<M>) -> Held<M> {
        std::marker::PhantomData
    }

    #[inline]
    pub(super) fn made<M>(_: Held<M>) -> Option<M> {
        None
    }
}

impl<M> Mistaken<M> {
    /// None.
    pub const NONE: Mistaken<M> = Mistaken(held::nothing());

    /// This mistake, or `None` if this build supports no mistakes.
    pub fn making(mistake: M) -> Option<Mistaken<M>> {
        COMPILED.then(|| Mistaken(held::hold(Some(mistake))))
    }
}

impl<M: Copy + Eq> Mistaken<M> {
    /// Whether this mistake is selected.
    #[inline]
    pub fn is(self, mistake: M) -> bool {
        COMPILED && held::made(self.0) == Some(mistake)
    }

    /// The corresponding mistake of a lower layer.
    pub fn and_then<N>(self, of: impl FnOnce(M) -> Option<N>) -> Mistaken<N> {
        Mistaken(held::hold(held::made(self.0).and_then(of)))
    }
}

#[cfg(any(test, feature = "mistakes"))]
impl<M> From<Option<M>> for Mistaken<M> {
    fn from(made: Option<M>) -> Mistaken<M> {
        Mistaken(held::hold(made))
    }
}

impl<M> Default for Mistaken<M> {
    /// None.
    #[inline]
    fn default() -> Self {
        Mistaken::NONE
    }
}

impl<M: Copy + fmt::Debug> fmt::Debug for Mistaken<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        held::made(self.0).fmt(f)
    }
}

/// Declares an enum of mistakes with their command names, and `ALL` of them.
#[macro_export]
macro_rules! mistakes {
    ($(#[$about:meta])* pub enum $Mistake:ident {
        $($(#[$rule:meta])* $one:ident: $name:literal,)+
    }) => {
        $(#[$about])*
        pub enum $Mistake {
            $($(#[$rule])* $one,)+
        }

        impl $Mistake {
            /// All mistakes with their command names.
            pub const ALL: [($Mistake, &'static str); [$($name),+].len()] =
                [$(($Mistake::$one, $name)),+];
        }

        // In a build without mistakes they take no room. `.ci/run` compiles what ships so.
        const _: () = assert!(
            (size_of::<$crate::mistakes::Mistaken<$Mistake>>() > 0) == $crate::mistakes::COMPILED
        );
    };
}
pub use mistakes;

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_mistake_is_itself_and_no_other() {
        let made = Mistaken::from(Some(3));
        assert!(made.is(3) && !made.is(4));
        assert!(!Mistaken::default().is(3));
    }

    #[test]
    fn a_part_further_down_makes_what_it_is_told() {
        let asked = Cell::new(0);
        let twice = |mistake: i32| {
            asked.set(asked.get() + 1);
            (mistake == 3).then_some(6)
        };
        assert!(Mistaken::from(Some(3)).and_then(twice).is(6));
        assert_eq!(Mistaken::from(Some(4)).and_then(twice), Mistaken::default());
        assert_eq!(Mistaken::default().and_then(twice), Mistaken::default());
        assert_eq!(asked.get(), 2);
    }

    #[test]
    fn it_is_shown_as_an_option() {
        assert_eq!(format!("{:?}", Mistaken::from(Some(3))), "Some(3)");
        assert_eq!(format!("{:?}", Mistaken::<i32>::default()), "None");
    }
}
