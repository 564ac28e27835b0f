//! Putting dead letters back. A letter is durable before its message is acked, so that a retry may come while
//! the message is still in its row: then the ack to come would delete both.
//!
//! - P1: a letter is said to be in only if a row holds it that no earlier ack can delete, or if its token was
//!   known before.
//! - P2: a letter whose place holds another message goes to the end; the other one is left alone.

use rusqlite::Result;

use super::books::{Books, Now};
use super::request::{Placed, PutBack};
use super::table::Table;
use super::window::{GroupKey, Pick};
use crate::message::Pointer;

impl Books {
    /// Puts dead letters back at their old places, and says of each what became of it. One whose place this
    /// file never had goes to the end.
    pub(super) fn put_back(
        &mut self,
        table: Table<'_>,
        letters: &[PutBack],
        now: Now,
    ) -> Result<Vec<Placed>> {
        let mut order: Vec<usize> = (0..letters.len()).collect();
        order.sort_by_key(|&at| letters[at].seq);
        let mut placed = vec![Placed::Known; letters.len()];
        let generation = self.counters.put_backs + 1;
        for at in order {
            placed[at] = self.place(table, &letters[at], generation, now)?;
        }
        self.counters.put_backs += u64::from(placed.contains(&Placed::New));
        Ok(placed)
    }

    fn place(&mut self, table: Table<'_>, letter: &PutBack, generation: u64, now: Now) -> Result<Placed> {
        if table.was_put_back(&letter.token)? {
            return Ok(Placed::Known);
        }
        let seq = letter.seq;
        let had_place = seq > 0 && seq < self.counters.next_seq;
        let there = if had_place { table.body(seq)? } else { None };
        match there {
            Some(body) if is_same(&body, &letter.body) => return Ok(Placed::Unacked),
            None if had_place => {
                table.insert((seq, generation), &letter.group, 0, now.wall, &letter.body)?;
                self.counters.messages += 1;
                if seq <= self.cursor && !self.claims.has(seq) {
                    self.window.add(Pick { seq, group: GroupKey::of(&letter.group) }, 0, now.wall);
                }
            }
            _ => drop(self.append(table, &letter.group, 0, &letter.body, now)?),
        }
        table.remember_put_back(&letter.token, now.wall)?;
        Ok(Placed::New)
    }
}

/// The same message, perhaps written anew: a letter keeps what a body says, not its bytes.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let id = |body| serde_json::from_slice::<Pointer<'_>>(body).ok().map(|pointer| pointer.id.into_owned());
    one == other || id(one).is_some_and(|one| id(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use super::is_same;

    #[test]
    fn a_message_is_known_by_its_id_and_what_has_none_by_its_bytes() {
        let rows = [
            (r#"{"id":"a","mediationTarget":"x"}"#, r#"{"mediationTarget":"x", "id":"a"}"#, true),
            (r#"{"id":"a","mediationTarget":"x"}"#, r#"{"id":"b","mediationTarget":"x"}"#, false),
            (r#"{"id":"a","mediationTarget":"x"}"#, "nonsense", false),
            ("nonsense", "nonsense", true),
            ("nonsense", "other nonsense", false),
        ];
        for (one, other, want) in rows {
            assert_eq!(is_same(one.as_bytes(), other.as_bytes()), want, "{one} {other}");
        }
    }
}
