//! The tools of the benchmarks.

use std::time::Instant;

/// Run `operation` `rounds` times in a row, several times over, and print the best and the median time in nanoseconds;
/// with `once` only run it, for a profiler.
pub(crate) fn time(name: &str, once: bool, rounds: u32, mut operation: impl FnMut()) {
    if once {
        (0..10_000).for_each(|_| operation());
        return;
    }
    let mut samples: Vec<f64> = (0..15)
        .map(|_| {
            let start = Instant::now();
            (0..rounds).for_each(|_| operation());
            start.elapsed().as_secs_f64() * 1e9 / f64::from(rounds)
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    println!("{name:40} {:12.1} ns best {:12.1} ns median", samples[0], samples[samples.len() / 2]);
}
