//! Tables for a terminal: columns as wide as they must be, numbers to the right. Pure. What comes from outside
//! is cleaned, so that a group's name cannot move the cursor.

/// A table that grows by rows.
pub(super) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

/// Widest cell; longer ones are cut.
const CELL_MAX: usize = 60;

impl Table {
    /// A name that starts with `>` is a column of numbers.
    pub(super) fn new(head: &[&'static str]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: &[String]) {
        self.rows.push(cells.iter().map(|cell| clean(cell)).collect());
    }

    pub(super) fn text(&self) -> String {
        let names: Vec<&str> = self.head.iter().map(|name| name.trim_start_matches('>')).collect();
        let width = |at: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
            cells.chain([names[at].chars().count()]).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..names.len()).map(width).collect();
        let mut out = String::new();
        let head = names.iter().map(|name| (*name).to_owned()).collect();
        for row in [&head].into_iter().chain(&self.rows) {
            let mut line = String::from(" ");
            for ((cell, name), width) in row.iter().zip(&self.head).zip(&widths) {
                let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
                line.push(' ');
                if name.starts_with('>') {
                    line.push_str(&padding);
                    line.push_str(cell);
                } else {
                    line.push_str(cell);
                    line.push_str(&padding);
                }
                line.push(' ');
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

/// Without control characters.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

/// Without control characters, and not too long.
pub(super) fn clean(text: &str) -> String {
    if text.chars().count() <= CELL_MAX {
        return plain(text);
    }
    plain(text).chars().take(CELL_MAX - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_nothing_moves_the_cursor() {
        let mut table = Table::new(&["name", ">count"]);
        table.row(&["a".into(), "1".into()]);
        table.row(&["long\u{1b}[2Jname".into(), "1000".into()]);
        let want = "  name          count\n  a                 1\n  long\u{fffd}[2Jname   1000\n";
        assert_eq!(table.text(), want);
        assert_eq!(clean(&"x".repeat(100)).chars().count(), CELL_MAX);
    }
}
