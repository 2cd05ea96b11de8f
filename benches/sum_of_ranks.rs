//! The time in which several processes sum as many values as a model has parameters: the all-reduce of each
//! update.
//!
//! `benches/ranks` runs it; alone: `mpirun -np 2 target/release/sum_of_ranks 60000000`.

use std::time::Instant;

use transformer_train::ranks::Mpi;

const ROUNDS: u32 = 10;

fn main() -> Result<(), String> {
    let numbers = std::env::args().nth(1).map(|number| number.parse());
    let numbers: usize = match numbers {
        Some(Ok(numbers)) => numbers,
        _ => return Err("give the number of values".into()),
    };
    Mpi::run(|ranks| {
        let mut buffer = vec![0.5_f32; numbers];
        // The first sum connects the processes.
        ranks.sum_in_place(&mut buffer);
        let start = Instant::now();
        for _ in 0..ROUNDS {
            ranks.sum_in_place(&mut buffer);
        }
        if ranks.is_first() {
            let seconds = start.elapsed().as_secs_f64() / f64::from(ROUNDS);
            println!(
                "{numbers} values summed over {} processes in {seconds:.3} s",
                ranks.size()
            );
        }
        Ok(())
    })
}
