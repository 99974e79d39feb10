//! Finds a name in a fixed list, at once for nearly all names.

/// More than twice as many as any list has names, so that most are found or missed at once.
const PLACES: usize = 1024;

/// The positions of a list's names, by a hash of the name: one more than the position, 0 for none.
pub struct Index {
    places: [u16; PLACES],
    names: usize,
}

/// The place to begin at: names differ in how they begin and end, or in length.
#[inline]
const fn place(name: &[u8]) -> usize {
    const fn part(bytes: Option<&[u8; 4]>) -> u32 {
        match bytes {
            Some(bytes) => u32::from_le_bytes(*bytes),
            None => 0,
        }
    }
    let (first, last) = (part(name.first_chunk()), part(name.last_chunk()));
    let mixed = (first ^ last.rotate_left(13))
        .wrapping_add(name.len() as u32)
        .wrapping_mul(0x9E37_79B1);
    mixed as usize >> 22
}

impl Index {
    /// The index of an empty list.
    pub const fn new() -> Self {
        Self {
            places: [0; PLACES],
            names: 0,
        }
    }

    /// Returns the index with a name, which is at this position of the list.
    pub const fn with(mut self, name: &str, position: usize) -> Self {
        self.names += 1;
        assert!(self.names * 2 < PLACES && position < u16::MAX as usize);
        let mut at = place(name.as_bytes());
        while self.places[at] != 0 {
            at = (at + 1) % PLACES;
        }
        self.places[at] = position as u16 + 1;
        self
    }

    /// The position of a name. `name_at` gives the name at a position.
    #[inline]
    pub fn find(
        &self,
        name: &[u8],
        name_at: impl Fn(usize) -> Option<&'static str>,
    ) -> Option<usize> {
        let mut at = place(name);
        loop {
            let position = usize::from(self.places[at % PLACES]).checked_sub(1)?;
            if name_at(position)?.as_bytes() == name {
                return Some(position);
            }
            at += 1;
        }
    }
}
