//! Two rows of bars for a sweep: deliveries per second, and CPU per delivery.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use thiserror::Error;

use super::Run;

const WIDTH: u32 = 900;
const HEIGHT: u32 = 700;
const DELIVERIES: RGBColor = RGBColor(46, 110, 180);
const CPU: RGBColor = RGBColor(200, 110, 40);
/// Room above the tallest bar for its figure.
const HEADROOM: f64 = 1.15;

/// A plot that was not written. Whoever chose the path or the runs mends it.
#[derive(Debug, Error)]
pub enum PlotError {
    /// There is nothing to show.
    #[error("plot no runs")]
    Empty,
    /// Drawing or writing the file failed.
    #[error("draw the plot: {0}")]
    Draw(String),
}

/// Draws the runs as bars into an SVG file.
///
/// # Errors
/// When there are no runs, or the file cannot be written.
pub fn svg(runs: &[Run], path: &Path) -> Result<(), PlotError> {
    if runs.is_empty() {
        return Err(PlotError::Empty);
    }
    draw(runs, path).map_err(|error| PlotError::Draw(error.to_string()))
}

type AnyError = Box<dyn std::error::Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn draw(runs: &[Run], path: &Path) -> Result<(), AnyError> {
    let root = SVGBackend::new(path, (WIDTH, HEIGHT)).into_drawing_area();
    root.fill(&WHITE)?;
    let (upper, lower) = root.split_vertically(HEIGHT / 2);
    bars(&upper, runs, "deliveries per second", DELIVERIES, 0, |run| run.deliveries_per_s)?;
    bars(&lower, runs, "CPU per delivery, µs", CPU, 2, |run| run.cpu_us_per_delivery)?;
    root.present()?;
    Ok(())
}

fn bars(
    area: &Area<'_>,
    runs: &[Run],
    title: &str,
    color: RGBColor,
    decimals: usize,
    figure: impl Fn(&Run) -> f64,
) -> Result<(), AnyError> {
    let top = runs.iter().map(&figure).fold(0.0, f64::max).max(f64::MIN_POSITIVE) * HEADROOM;
    // A segmented range includes its end.
    let last = u32::try_from(runs.len() - 1)?;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(80)
        .build_cartesian_2d((0..last).into_segmented(), 0.0..top)?;
    let name = |at: &SegmentValue<u32>| match at {
        SegmentValue::CenterOf(n) => usize::try_from(*n).ok().and_then(|n| runs.get(n)),
        SegmentValue::Exact(_) | SegmentValue::Last => None,
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(runs.len())
        .x_label_formatter(&|at| name(at).map(|run| run.name.clone()).unwrap_or_default())
        .y_label_formatter(&|value| format!("{value:.0}"))
        .draw()?;
    let indexed = || (0..=last).zip(runs.iter().map(&figure));
    chart.draw_series(indexed().map(|(n, value)| {
        let right = if n == last { SegmentValue::Last } else { SegmentValue::Exact(n + 1) };
        let corners = [(SegmentValue::Exact(n), 0.0), (right, value)];
        let mut bar = Rectangle::new(corners, color.filled());
        bar.set_margin(0, 0, 20, 20);
        bar
    }))?;
    chart.draw_series(indexed().map(|(n, value)| {
        let style = ("sans-serif", 14).into_font().color(&BLACK);
        let at = (SegmentValue::CenterOf(n), value);
        EmptyElement::at(at) + Text::new(format!("{value:.decimals$}"), (-18, -16), style)
    }))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use super::super::tests::runs;
    use super::*;

    #[test]
    fn a_plot_shows_every_run_twice() {
        let path = env::temp_dir().join(format!("corelane-plot-{}.svg", process::id()));
        svg(&runs(), &path).expect("draw");
        svg(&runs()[..1], &path.with_extension("one.svg")).expect("draw a single run");
        fs::remove_file(path.with_extension("one.svg")).expect("clean up");
        let text = fs::read_to_string(&path).expect("read");
        fs::remove_file(&path).expect("clean up");
        assert_eq!(text.matches("512 connections").count(), 2, "{text}");
        assert!(text.contains("98765") && text.contains("9.88"), "{text}");
    }

    #[test]
    fn a_plot_of_nothing_or_to_nowhere_is_refused() {
        assert!(matches!(svg(&[], Path::new("/nowhere/x.svg")), Err(PlotError::Empty)));
        assert!(matches!(svg(&runs(), Path::new("/nowhere/x.svg")), Err(PlotError::Draw(_))));
    }
}
