//! One link hop: pushed on one core, popped on another; and the price of a bell that no one waits for.

mod bench;

use std::sync::Arc;

use shards::link::{Bell, Tx, ring};

/// As many pushes as a turn of the ingress makes before it rings.
const TURN: u64 = 64;

fn push_all(tx: &mut Tx<u64>, rounds: u64) {
    for number in 0..rounds {
        let mut value = number;
        while let Err(back) = tx.push(value) {
            value = back;
            std::hint::spin_loop();
        }
        if number % TURN == 0 {
            tx.ring_if_dirty();
        }
    }
    tx.ring_if_dirty();
}

fn main() {
    let rounds = bench::rounds(10_000, 20_000_000);
    let bell = Arc::new(Bell::new().expect("an eventfd"));
    let (mut tx, mut rx) = ring(4_096, bell);
    let consumer = bench::on_core(1, move || {
        let (mut sum, mut count) = (0_u64, 0);
        while count < rounds {
            match rx.pop() {
                Some(value) => {
                    assert_eq!(value, count, "L1: in order");
                    sum = bench::mix(sum, value);
                    count += 1;
                }
                None => std::hint::spin_loop(),
            }
        }
        sum
    });
    let producer = bench::on_core(0, move || bench::time(|| push_all(&mut tx, rounds)).0);
    let sum = consumer.join().expect("the consumer ends");
    bench::report("link_hop", rounds, producer.join().expect("the producer ends"), sum);

    let bell = Bell::new().expect("an eventfd");
    let (elapsed, ()) = bench::time(|| {
        for _ in 0..rounds {
            std::hint::black_box(&bell).ring_if_asleep();
        }
    });
    bench::report("bell_nobody_sleeps", rounds, elapsed, rounds);
}
