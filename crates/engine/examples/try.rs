use flint_engine::batch::Batch;
use flint_engine::device::cpu::Cpu;
use flint_engine::load::ModelFile;
use flint_engine::model::Loaded;
use flint_engine::runner::Runner;
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let t = Instant::now();
    let file = ModelFile::open(args[1].as_ref()).unwrap();
    let blocks = 5000 / 32 + 1;
    let mut m = Loaded::new(&file, Cpu::new(2).unwrap(), blocks, &mut |_, _| ()).unwrap();
    println!("load {:?}", t.elapsed());
    let prompt: Vec<u32> = args[2].split(',').map(|s| s.parse().unwrap()).collect();
    let table: Vec<u32> = (0..blocks as u32).collect();
    let mut batch = Batch::default();
    let argmax = |l: &[f32]| l.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0 as u32;
    batch.push(&prompt, 0, &table, true);
    m.forward(&batch).unwrap();
    let mut tok = argmax(m.logits(0));
    let mut out = vec![tok];
    for i in 0..40 {
        batch.clear();
        batch.push(&[tok], prompt.len() + i, &table, true);
        m.forward(&batch).unwrap();
        tok = argmax(m.logits(0));
        out.push(tok);
    }
    println!("{out:?}");
    let mut bench = |name: &str, depth: usize, rows: usize, reps: usize| {
        let toks: Vec<u32> = (0..rows as u32).map(|i| 100 + i * 7 % 1000).collect();
        let mut times = vec![];
        for _ in 0..reps {
            batch.clear();
            batch.push(&toks, depth, &table, true);
            let t = Instant::now();
            m.forward(&batch).unwrap();
            times.push(t.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        let med = times[reps / 2];
        println!("{name}: {:.3} ms, {:.1} tok/s (best {:.3})", med * 1e3, rows as f64 / med, times[0] * 1e3);
    };
    bench("decode d0", 0, 1, 60);
    bench("decode d4000", 4000, 1, 30);
    bench("m8 d0", 0, 8, 20);
    bench("m16 d2048", 2048, 16, 20);
    bench("prefill 512", 0, 512, 3);
    bench("prefill 512 at 3584", 3584, 512, 2);
}
