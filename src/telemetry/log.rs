//! Logs: text on a terminal, a JSON object per line elsewhere.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// Text.
    Text,
    /// JSON.
    Json,
}

/// Libraries whose own words are left out unless the filter names them: their adapter says the same, once and in full.
const QUIET: [&str; 2] = ["async_nats", "lapin"];

/// Starts logging to standard error. Once per process.
///
/// # Errors
/// The filter can't be read; the text says what is wrong with it.
pub fn start(filter: &str, shape: Shape) -> Result<(), String> {
    let filter = with_quiet(filter);
    let filter = EnvFilter::try_new(&filter).map_err(|error| format!("log filter {filter:?}: {error}"))?;
    let terminal = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let json = shape == Shape::Json || (shape == Shape::Auto && !terminal);
    let started = if json {
        builder.json().flatten_event(true).with_current_span(false).try_init()
    } else {
        builder.with_target(false).with_ansi(terminal).compact().try_init()
    };
    started.map_err(|error| format!("start logging: {error}"))
}

fn with_quiet(filter: &str) -> String {
    let quiet = QUIET.iter().filter(|name| !filter.contains(**name));
    quiet.fold(filter.to_owned(), |all, name| format!("{all},{name}=off"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_heard_only_where_the_filter_names_it() {
        let rows = [
            ("info", "info,async_nats=off,lapin=off"),
            ("info,corelane::sync=debug", "info,corelane::sync=debug,async_nats=off,lapin=off"),
            ("warn,async_nats=debug", "warn,async_nats=debug,lapin=off"),
        ];
        for (filter, want) in rows {
            assert_eq!(with_quiet(filter), want);
            assert!(EnvFilter::try_new(want).is_ok(), "{want}");
        }
    }
}
