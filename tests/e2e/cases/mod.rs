//! The cases. Each returns what was read back, for the table; anything that must not be panics.

mod delivery;

use crate::stage::Stage;

/// A case.
pub(crate) struct Case {
    /// The table's row.
    pub(crate) name: &'static str,
    pub(crate) run: fn(&mut Stage<'_>) -> String,
}

/// All of them, in the order of the table.
pub(crate) const CASES: &[Case] = &[
    Case { name: "deliver", run: delivery::deliver },
];
