//! Values under keys that are never used twice. Pure.

/// Low bits of a key: the slot. The rest is the slot's generation.
const SLOT_BITS: u32 = 24;
const SLOT_MASK: usize = (1 << SLOT_BITS) - 1;
/// Generations wrap before a key could equal one of the loop's own tokens.
const GENERATION_MAX: usize = (usize::MAX >> SLOT_BITS) - 1;

/// A slab whose keys carry a generation: a key of a removed value finds nothing.
#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Vec<(usize, Option<T>)>,
    free: Vec<usize>,
}

impl<T> Slots<T> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// Keeps a value; returns its key.
    pub(super) fn insert(&mut self, value: T) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() - 1
        });
        assert!(slot <= SLOT_MASK, "file descriptors run out long before slots");
        let (generation, place) = &mut self.slots[slot];
        *place = Some(value);
        *generation << SLOT_BITS | slot
    }

    /// The value of a key, unless it was removed.
    pub(super) fn get(&mut self, key: usize) -> Option<&mut T> {
        let (generation, place) = self.slots.get_mut(key & SLOT_MASK)?;
        if *generation == key >> SLOT_BITS { place.as_mut() } else { None }
    }

    /// Takes a value out; its key is dead from then on.
    pub(super) fn remove(&mut self, key: usize) -> Option<T> {
        let value = self.get(key).is_some().then(|| self.slots[key & SLOT_MASK].1.take()).flatten()?;
        let generation = &mut self.slots[key & SLOT_MASK].0;
        *generation = (*generation + 1) % GENERATION_MAX;
        self.free.push(key & SLOT_MASK);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::Slots;

    #[test]
    fn a_key_dies_with_its_value() {
        let mut slots = Slots::new();
        let first = slots.insert('a');
        assert_eq!(slots.remove(first), Some('a'));
        let second = slots.insert('b');
        assert_ne!(first, second, "the slot is used again, the key is not");
        assert_eq!(slots.get(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get(second), Some(&mut 'b'));
    }
}
