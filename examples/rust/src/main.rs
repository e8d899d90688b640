// main.rs: trains a classifier on points that the program makes itself: class c lies around POINTS[c].
mod net {
    include!(concat!(env!("OUT_DIR"), "/net.rs"));
}
use net::{Error, Kind, Trainer};

const POINTS: [[f32; 4]; 3] = [[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, -1.0], [0.0, 0.0, 1.0, 0.0]];

struct Random(u64);

impl Random {
    fn next(&mut self) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize
    }
    fn noise(&mut self) -> f32 {
        self.next() as f32 / (1u64 << 31) as f32 - 0.5
    }
}

fn draw_batch(model: &mut Trainer, random: &mut Random) -> Result<(), Error> {
    let labels: Vec<i64> = (0..16).map(|_| (random.next() % 3) as i64).collect();
    model.values_mut(Kind::Inputs, "labels")?.copy_from_slice(&labels);
    let x = model.values_mut::<f32>(Kind::Inputs, "x")?;
    for (row, label) in x.chunks_exact_mut(4).zip(&labels) {
        for (value, center) in row.iter_mut().zip(POINTS[*label as usize]) {
            *value = center + random.noise();
        }
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    let mut model = Trainer::open()?;
    let mut random = Random(5);
    draw_batch(&mut model, &mut random)?;
    let before = model.evaluate()?;
    for _ in 0..500 {
        draw_batch(&mut model, &mut random)?;
        model.step()?;
    }
    draw_batch(&mut model, &mut random)?;
    let after = model.evaluate()?;
    let accuracy = model.metric("accuracy").unwrap_or(f64::NAN);
    println!("loss {before:.3} before, {after:.3} after {} steps, accuracy {accuracy:.2}", model.steps());
    assert!(after < 0.5 * before);
    Ok(())
}
