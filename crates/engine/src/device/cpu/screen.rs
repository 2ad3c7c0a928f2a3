//! The likeliest token of one row without reading all of the head.
//!
//! The upper 3 bits of its 6-bit levels say which panels can have the largest logit; of those alone all bits are read. The logits
//! compared at the end are those of the whole head, to the bit. A token is passed over wrongly only where what was not read
//! of its row is as far from chance as `bounds.rs` says.

use super::cut::Cut;
use super::input::{Input, LargeLevels, Places, Prepare};
use super::matmul::{BoundPanel, Bounds, Coarse, GROUP, Output, Product, Rows};
use super::memory::Shared;
use super::pack::{LARGE_BLOCK, Packed};
use super::pool::Pool;
use super::simd::{Isa, LANES};
use crate::model::available_bytes;
use crate::quant::Format;
use std::cmp::Ordering::{Equal, Less};
use std::ops::Range;
use std::sync::atomic::{AtomicI32, Ordering};

/// A smaller head is soon read whole.
const BYTES_MIN: usize = 32 << 20;
/// Memory that stays free beside it.
const SPARE_BYTES: usize = 1 << 30;
/// Where more than one in so many panels is left, reading these as well costs more than it saves...
const LEFT_SHARE: usize = 4;
/// ...and for so many tokens the head is read whole.
const PAUSE_TOKENS: u32 = 64;

pub struct Screen {
    head: Packed,
    coarse: Coarse,
    threads: Vec<Part>,
    pause: u32, // tokens for which it is not tried
    found: Option<Found>,
}

/// What is known of the last row.
struct Found {
    logits: *const f32, // where they would be
    best: Option<u32>,
}

// SAFETY: the address is compared, not read.
unsafe impl Send for Found {}

/// One thread's.
#[repr(align(128))]
struct Part {
    energies: Vec<f32>,    // (cols / GROUP) of the row
    left: Vec<(u32, f32)>, // panels that may have the largest logit, and what theirs are not above
    best: Option<Best>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Best {
    logit: f32,
    token: u32,
}

/// What the largest logit is not below, as far as the threads know by now.
struct Least(AtomicI32);

impl Screen {
    /// Of a head that is stored so and large, if the system has memory for a part of it once more.
    pub fn of(parts: &[Packed], pool: &mut Pool) -> Option<Screen> {
        let [head] = parts else { return None };
        if head.format != Format::Q6K || head.bytes() < BYTES_MIN {
            return None;
        }
        let need = (Coarse::bytes_of(head) + SPARE_BYTES) as u64;
        if available_bytes().is_some_and(|free| free < need) { None } else { Screen::new(head, pool) }
    }

    fn new(head: &Packed, pool: &mut Pool) -> Option<Screen> {
        let part = |_| Part {
            energies: vec![0.0; head.cols / GROUP],
            left: Vec::with_capacity(head.panels()),
            best: None,
        };
        let threads = (0..pool.threads()).map(part).collect();
        let coarse = Coarse::of(pool, head).ok()?;
        Some(Screen { head: head.clone(), coarse, threads, pause: 0, found: None })
    }

    /// Bytes of the head that need not be read, more or less.
    pub fn saved(&self) -> usize {
        self.head.bytes() - self.coarse.bytes()
    }

    pub fn cols(&self) -> usize {
        self.head.cols
    }

    pub fn forget(&mut self) {
        self.found = None;
    }

    /// Finds the likeliest token, whose logits would be at `logits`. Not where so much was left of late that it does not pay;
    /// whether it was tried is told.
    pub fn find(&mut self, pool: &mut Pool, isa: Isa, prepare: &Prepare<'_>, logits: *const f32) -> bool {
        if self.pause > 0 {
            self.pause -= 1;
            return false;
        }
        let Screen { head, coarse, threads, .. } = self;
        let units = head.units(pool.threads(), 1, usize::MAX);
        let least = Least::new();
        let parts = Shared::new(threads);
        pool.run(|worker| {
            // SAFETY: each thread has its own part; the input is whole when it is read.
            unsafe {
                let part = &mut parts.range_mut(worker.index, 1)[0];
                let input = prepare.run(worker, Cut::Columns);
                part.begin(input.large);
                while let Some(unit) = worker.take(units.count()) {
                    part.screen(isa, coarse, units.panels(unit), input.large, &least);
                }
                worker.barrier();
                part.look(isa, head, input, least.get());
            }
        });
        let left: usize = self.threads.iter().map(|part| part.left.len()).sum();
        if left * LEFT_SHARE > self.head.panels() {
            self.pause = PAUSE_TOKENS;
        }
        let best = self.threads.iter().filter_map(|part| part.best).reduce(Best::or);
        let best = best.filter(|best| best.logit.is_finite()).map(|best| best.token);
        self.found = Some(Found { logits, best });
        true
    }

    /// Whether the row was looked through, whose logits would be there, but were not made.
    pub fn stands_for(&self, logits: *const f32) -> bool {
        self.found.as_ref().is_some_and(|found| found.logits == logits)
    }

    /// What was found for that row.
    pub fn best(&self, logits: *const f32) -> Option<u32> {
        self.found.as_ref().filter(|_| self.stands_for(logits))?.best
    }

    /// Makes the logits after all, if they were not; `places` has the row as it was.
    pub fn make_logits(&mut self, pool: &mut Pool, isa: Isa, places: &Places<'_>, logits: &mut [f32]) {
        if self.found.take_if(|found| found.logits == logits.as_ptr()).is_none() {
            return;
        }
        let units = self.head.units(pool.threads(), 1, usize::MAX);
        let (head, output) = (&self.head, Output { base: logits.as_mut_ptr(), stride: logits.len() });
        pool.run(|worker| {
            while let Some(unit) = worker.take(units.count()) {
                let panels = units.panels(unit);
                let at = panels.start * LANES;
                // SAFETY: the row's input is there still; each unit is taken by one thread.
                unsafe { one_row(head, places.of(worker), output).run(isa, panels, at) };
            }
        });
    }
}

/// A matrix times one row.
fn one_row<'a>(matrix: &'a Packed, input: Input<'a>, output: Output) -> Product<'a> {
    let (from, to) = (Rows::From(0), Rows::From(0));
    Product { matrix, bias: None, input, from, to, count: 1, output, add: false }
}

impl Part {
    /// # Safety
    /// `row` has the head's columns.
    unsafe fn begin(&mut self, row: *const LargeLevels) {
        self.left.clear();
        for (at, energies) in self.energies.chunks_exact_mut(LARGE_BLOCK / GROUP).enumerate() {
            // SAFETY: a block for each 256 columns.
            let levels = unsafe { &(*row.add(at)).levels };
            for (energy, levels) in energies.iter_mut().zip(levels.chunks_exact(GROUP)) {
                *energy = levels.iter().map(|&level| i32::from(level).pow(2)).sum::<i32>() as f32;
            }
        }
    }

    /// Keeps the panels that may have the largest logit, as far as is known by now.
    fn screen(
        &mut self,
        isa: Isa,
        matrix: &Coarse,
        panels: Range<usize>,
        row: *const LargeLevels,
        least: &Least,
    ) {
        for panel in panels {
            let Bounds { upper, lower } =
                isa.run(BoundPanel { matrix, panel, row, energies: &self.energies });
            if upper >= least.raise(lower) {
                self.left.push((panel as u32, upper));
            }
        }
    }

    /// Finds the best of the panels that are left.
    ///
    /// # Safety
    /// `input` has the row.
    unsafe fn look(&mut self, isa: Isa, head: &Packed, input: Input<'_>, least: f32) {
        self.left.retain(|&(_, upper)| upper >= least);
        self.best = None;
        for &(panel, _) in &self.left {
            let (panel, mut logits) = (panel as usize, [0.0; LANES]);
            let output = Output { base: logits.as_mut_ptr(), stride: LANES };
            // SAFETY: passed on; there is room for a panel's rows.
            unsafe { one_row(head, input, output).run(isa, panel..panel + 1, 0) };
            let tokens = panel * LANES..head.rows.min((panel + 1) * LANES);
            let found = tokens.zip(logits).map(|(token, logit)| Best { logit, token: token as u32 });
            self.best = self.best.into_iter().chain(found).reduce(Best::or);
        }
    }
}

impl Best {
    /// The better one: what is no number above all, so that it is seen; of equals the lower token.
    fn or(self, other: Best) -> Best {
        match self.logit.partial_cmp(&other.logit) {
            _ if self.logit.is_nan() => self,
            None | Some(Less) => other,
            Some(Equal) if other.token < self.token => other,
            _ => self,
        }
    }
}

impl Least {
    fn new() -> Least {
        Least(AtomicI32::new(Least::key(f32::NEG_INFINITY)))
    }

    /// Of a number, a whole number of the same order; and the other way.
    fn key(value: f32) -> i32 {
        let bits = value.to_bits() as i32;
        bits ^ (bits >> 31) & i32::MAX
    }

    fn get(&self) -> f32 {
        let key = self.0.load(Ordering::Relaxed);
        f32::from_bits((key ^ (key >> 31) & i32::MAX) as u32)
    }

    /// Makes it known that a logit is not below this, and tells what is known.
    fn raise(&self, lower: f32) -> f32 {
        if lower > self.get() {
            self.0.fetch_max(Least::key(lower), Ordering::Relaxed);
        }
        self.get()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Buffer, Cpu, InputMemory, Matrix};
    use super::*;
    use crate::batch::Batch;
    use crate::device::{Device, Head, Norm};
    use crate::load::Tensor;
    use crate::quant::quantize_row;

    const COLS: usize = 768;
    const ROWS: usize = 1003; // the last panel is not full

    /// Numbers about 0, the same in each run.
    struct Numbers(u64);

    impl Numbers {
        fn next(&mut self) -> f32 {
            let mut uniform = || {
                self.0 =
                    self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (self.0 >> 40) as f32 / (1u64 << 24) as f32
            };
            (0..6).map(|_| uniform()).sum::<f32>() - 3.0
        }

        fn row(&mut self) -> Vec<f32> {
            (0..COLS).map(|_| self.next()).collect()
        }
    }

    struct Case {
        cpu: Cpu,
        head: Head<Cpu>,
        logits: Buffer,
    }

    impl Case {
        fn new(isa: Isa, rows: &[Vec<f32>]) -> Case {
            let mut cpu = Cpu::with_isa(2, isa).unwrap();
            let mut bytes = Vec::new();
            rows.iter().for_each(|row| assert!(quantize_row(Format::Q6K, row, &mut bytes)));
            let tensor =
                Tensor::in_memory("output.weight", &[rows.len(), COLS], Format::Q6K, &bytes).unwrap();
            let matrix: Matrix = cpu.matrix(&[tensor]).unwrap();
            cpu.inputs = InputMemory::new(COLS, 2).unwrap();
            cpu.screen = Screen::new(&matrix.parts[0], &mut cpu.pool);
            let logits = cpu.buffer(1, rows.len()).unwrap();
            Case { cpu, head: Head { norm: Norm { weight: vec![1.0; COLS], eps: 1e-6 }, matrix }, logits }
        }

        /// The head's logits, or what is told of them.
        fn head(&mut self, x: &[f32], greedy: bool) {
            let mut input = self.cpu.buffer(1, COLS).unwrap();
            input.values.copy_from_slice(x);
            let mut batch = Batch { greedy, ..Batch::default() };
            batch.push(&[0], 0, &[0], true);
            self.cpu.screen.iter_mut().for_each(Screen::forget);
            self.cpu.head(&self.head, &input, &batch, &mut self.logits);
        }

        /// However much was left the last time.
        fn try_again(&mut self) {
            self.cpu.screen.iter_mut().for_each(|screen| screen.pause = 0);
        }

        /// What the screen tells.
        fn best(&self) -> Option<u32> {
            self.cpu.screen.as_ref()?.best(self.logits.row(0).as_ptr())
        }

        fn logits(&mut self) -> Vec<f32> {
            self.cpu.read(&mut self.logits, 0).to_vec()
        }

        fn left(&self) -> usize {
            self.cpu.screen.iter().flat_map(|screen| &screen.threads).map(|part| part.left.len()).sum()
        }
    }

    fn likeliest(logits: &[f32]) -> u32 {
        crate::sample::likeliest(logits).unwrap()
    }

    #[test]
    fn the_likeliest_token_is_that_of_all_logits_and_they_can_be_had_after_all() {
        let mut numbers = Numbers(1);
        let mut rows: Vec<Vec<f32>> = (0..ROWS).map(|_| numbers.row()).collect();
        // Tokens of one row: the first of them is the likeliest.
        rows[700] = rows[300].clone();
        rows[ROWS - 1] = rows[300].clone();
        for isa in Isa::available() {
            let mut case = Case::new(isa, &rows);
            for number in 0..40 {
                case.try_again();
                let mut x = numbers.row();
                match number % 4 {
                    1 => x.copy_from_slice(&rows[300]),
                    2 => x.copy_from_slice(&rows[ROWS - 2]),
                    3 => x[number] = 20.0, // one value far larger than the others
                    _ => {}
                }
                case.head(&x, false);
                assert_eq!(case.best(), None, "nothing is told of logits that are there");
                let logits = case.logits();
                case.logits.values.fill(f32::NAN);
                case.head(&x, true);
                assert_eq!(case.best(), Some(likeliest(&logits)), "{} {number}", isa.name());
                if number % 4 == 1 {
                    assert_eq!((case.best(), case.left()), (Some(300), 3), "{}", isa.name());
                }
                assert_eq!(case.logits(), logits, "{} {number}", isa.name());
                assert_eq!(case.best(), None, "they may have been changed");
            }
        }
    }

    #[test]
    fn no_product_is_outside_its_bounds() {
        let mut numbers = Numbers(2);
        let rows: Vec<Vec<f32>> = (0..ROWS).map(|_| numbers.row()).collect();
        for isa in Isa::available() {
            let mut case = Case::new(isa, &rows);
            for _ in 0..10 {
                case.try_again();
                let x = numbers.row();
                case.head(&x, false);
                let logits = case.logits();
                case.head(&x, true);
                let Cpu { inputs, pool, screen: Some(screen), .. } = &mut case.cpu else {
                    panic!("it has a screen")
                };
                let Screen { coarse: matrix, threads, .. } = screen;
                let (places, energies) = (inputs.places(1, COLS), &threads[0].energies);
                pool.run(|worker| {
                    for panel in worker.share(ROWS.div_ceil(LANES)) {
                        let row = places.of(worker).large;
                        let Bounds { upper, lower } = isa.run(BoundPanel { matrix, panel, row, energies });
                        let logits = &logits[panel * LANES..ROWS.min((panel + 1) * LANES)];
                        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                        assert!(lower < most && most < upper, "{}: {lower} {most} {upper}", isa.name());
                    }
                });
            }
        }
    }

    #[test]
    fn what_is_no_number_is_told_as_the_logits_tell_it() {
        let mut numbers = Numbers(3);
        let rows: Vec<Vec<f32>> = (0..ROWS).map(|_| numbers.row()).collect();
        let mut case = Case::new(Isa::detect(), &rows);
        for odd in [f32::NAN, f32::INFINITY, f32::MAX] {
            let mut x = numbers.row();
            x[5] = odd;
            case.try_again();
            case.head(&x, false);
            let told = crate::sample::likeliest(&case.logits());
            case.head(&x, true);
            assert_eq!(case.best(), told, "{odd}");
        }
    }

    #[test]
    fn where_too_much_is_left_it_pauses() {
        let rows = vec![vec![1.0; COLS]; ROWS];
        let mut case = Case::new(Isa::detect(), &rows);
        let mut told = || {
            case.head(&[1.0; COLS], true);
            case.best()
        };
        assert_eq!(told(), Some(0));
        for _ in 0..PAUSE_TOKENS {
            assert_eq!(told(), None);
        }
        assert_eq!(told(), Some(0));
    }
}
