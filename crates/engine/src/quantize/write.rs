//! Writing the file, from front to back.

use super::plan::{Planned, Recipe, plan};
use super::{Done, Kind, QuantizeError};
use crate::device::cuda::ops::layout::exponent;
use crate::device::cuda::ops::stored;
use crate::load::flint::{DIGEST_KEY, LAYOUT_KEY};
use crate::load::gguf::{self, ALIGNMENT_KEY, Lies, OWN_MAGIC, OWN_VERSION, string_pair, write_string};
use crate::load::{ModelFile, Tensor};
use crate::quant::panels::{LANES, Packer, is_sound, panel_bytes};
use crate::quant::{dequantize_row, fit_row};
use sha2::{Digest, Sha256};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Every tensor begins at a multiple of this: a cache line.
const ALIGNMENT: u64 = 64;

/// Bytes that are made before they are written.
const PIECE_BYTES: usize = 16 << 20;

const DIGEST_CHARS: usize = 64;

/// Told of the bytes that are written and of all bytes; says whether to go on.
pub type Watch<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

/// Writes what the recipe makes of a model.
pub fn write(
    file: &ModelFile,
    recipe: Recipe,
    threads: usize,
    out: &mut (impl Write + Seek),
    watch: Watch<'_>,
) -> Result<Done, QuantizeError> {
    let plan = plan(file, recipe);
    if let Some(planned) = plan.iter().find(|planned| planned.tensor.tiles().is_some()) {
        return Err(QuantizeError::ForCards { name: planned.tensor.name.clone() });
    }
    let (header, digest_at) = header(file, recipe, &plan)?;
    let total = plan.iter().fold(header.len() as u64, |at, planned| aligned(at) + planned.bytes());
    out.write_all(&header)?;
    let mut data = Data { out, hasher: Sha256::new(), at: header.len() as u64, total, watch };
    let mut done = Done { bytes: total, ..Done::default() };
    for group in plan.chunk_by(Planned::stacks_with) {
        let changes = match group[0].lies {
            Lies::Tiles => tiles(group, threads, &mut data)?,
            Lies::Rows | Lies::Panels => arranged(group, threads, &mut data)?,
        };
        for (planned, change) in group.iter().zip(changes) {
            planned.tensor.release();
            note(&mut done, planned, change);
        }
    }
    done.sha256 = hex(&data.hasher.finalize());
    out.seek(SeekFrom::Start(digest_at as u64))?;
    out.write_all(done.sha256.as_bytes())?;
    out.flush()?;
    Ok(done)
}

/// Compares the data of a file of Flint's own with the digest that it names.
pub fn check(path: &Path) -> Result<(), QuantizeError> {
    let (expected, start) = crate::load::flint::digest(path)?;
    let mut file = std::fs::File::open(path)?;
    file.seek(SeekFrom::Start(start))?;
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => hasher.update(&buffer[..read]),
        }
    }
    let found = hex(&hasher.finalize());
    if found == expected { Ok(()) } else { Err(QuantizeError::Digest { found, expected }) }
}

fn aligned(at: u64) -> u64 {
    at.next_multiple_of(ALIGNMENT)
}

/// Everything before the data, and where the digest is to go.
fn header(file: &ModelFile, recipe: Recipe, plan: &[Planned]) -> Result<(Vec<u8>, usize), QuantizeError> {
    let mut pairs = file.pairs()?;
    pairs.push(string_pair(LAYOUT_KEY, recipe.lies.name().as_bytes()));
    let mut alignment = Vec::new();
    write_string(ALIGNMENT_KEY.as_bytes(), &mut alignment);
    alignment.extend(gguf::U32_KIND.to_le_bytes());
    alignment.extend((ALIGNMENT as u32).to_le_bytes());
    pairs.push(alignment);
    pairs.push(string_pair(DIGEST_KEY, &[b'0'; DIGEST_CHARS]));
    let mut header = OWN_MAGIC.to_vec();
    header.extend(OWN_VERSION.to_le_bytes());
    header.extend((plan.len() as u64).to_le_bytes());
    header.extend((pairs.len() as u64).to_le_bytes());
    header.extend(pairs.concat());
    let digest_at = header.len() - DIGEST_CHARS;
    let mut offset: u64 = 0;
    for planned in plan {
        write_string(planned.tensor.name.as_bytes(), &mut header);
        header.extend((planned.tensor.shape.len() as u32).to_le_bytes());
        header.extend(planned.tensor.shape.iter().rev().flat_map(|size| (*size as u64).to_le_bytes()));
        header.extend(format_number(planned).to_le_bytes());
        header.extend(offset.to_le_bytes());
        offset = aligned(offset + planned.bytes());
    }
    header.resize(header.len().next_multiple_of(ALIGNMENT as usize), 0);
    Ok((header, digest_at))
}

fn format_number(planned: &Planned) -> u32 {
    planned.lies.number() + planned.format.ggml_type().unwrap_or(0)
}

/// What follows the header.
struct Data<'a, W> {
    out: &'a mut W,
    hasher: Sha256,
    at: u64,
    total: u64,
    watch: Watch<'a>,
}

impl<W: Write> Data<'_, W> {
    fn push(&mut self, bytes: &[u8]) -> Result<(), QuantizeError> {
        self.out.write_all(bytes)?;
        self.hasher.update(bytes);
        self.at += bytes.len() as u64;
        if (self.watch)(self.at, self.total) { Ok(()) } else { Err(QuantizeError::Stopped) }
    }

    fn pad(&mut self) -> Result<(), QuantizeError> {
        let zeros = aligned(self.at) - self.at;
        self.push(&[0; ALIGNMENT as usize][..zeros as usize])
    }
}

/// What rounding did.
#[derive(Debug, Clone, Copy, Default)]
struct Change {
    error: f64,
    size: f64,
}

/// Tensors as rows or panels, each by itself.
fn arranged<W: Write>(
    group: &[Planned],
    threads: usize,
    data: &mut Data<'_, W>,
) -> Result<Vec<Change>, QuantizeError> {
    let one = |planned: &Planned| {
        data.pad()?;
        in_pieces(planned, threads, &mut |piece| data.push(piece))
    };
    group.iter().map(one).collect()
}

/// Tensors that are one matrix on a card. They are packed whole: a layer's experts are some hundred megabytes at most.
fn tiles<W: Write>(
    group: &[Planned],
    threads: usize,
    data: &mut Data<'_, W>,
) -> Result<Vec<Change>, QuantizeError> {
    let (mut tensors, mut changes) = (Vec::new(), Vec::new());
    for planned in group {
        let Planned { tensor, format, .. } = planned;
        if tensor.format == *format {
            tensors.push(tensor.clone());
            changes.push(Change::default());
            continue;
        }
        let (mut rows, plain) = (Vec::new(), Planned { lies: Lies::Rows, ..planned.clone() });
        changes.push(in_pieces(&plain, threads, &mut |piece| {
            rows.extend_from_slice(piece);
            Ok(())
        })?);
        tensors.push(Tensor::in_memory(&tensor.name, &tensor.shape, *format, &rows)?);
    }
    let exponent = exponent(&tensors);
    for tensor in &tensors {
        data.pad()?;
        data.push(&stored::write(tensor, exponent))?;
    }
    Ok(changes)
}

/// Makes a tensor in pieces, each by all threads.
fn in_pieces(
    planned: &Planned,
    threads: usize,
    push: &mut dyn FnMut(&[u8]) -> Result<(), QuantizeError>,
) -> Result<Change, QuantizeError> {
    let (rows, count) = planned.matrices();
    let groups = count * rows.div_ceil(LANES); // of 16 rows
    let cols = planned.tensor.cols();
    let group_bytes = match planned.lies {
        Lies::Rows | Lies::Tiles => LANES * planned.format.row_bytes(cols),
        Lies::Panels => panel_bytes(planned.format, cols),
    };
    let at_once = (PIECE_BYTES / group_bytes).max(1);
    let mut all = Change::default();
    for first in (0..groups).step_by(at_once) {
        let some = at_once.min(groups - first);
        let last = planned.bytes() as usize - first * group_bytes; // the last rows may be fewer
        let mut piece = vec![0; (some * group_bytes).min(last)];
        let share = some.div_ceil(threads.max(1));
        let changes: Vec<Option<Change>> = std::thread::scope(|scope| {
            let parts = piece.chunks_mut(share * group_bytes).enumerate();
            let jobs: Vec<_> = parts
                .map(|(index, part)| {
                    scope.spawn(move || Maker::new(planned).make(first + index * share, group_bytes, part))
                })
                .collect();
            jobs.into_iter().map(|job| job.join().unwrap_or_default()).collect()
        });
        for change in changes {
            let name = || planned.tensor.name.clone();
            let change = change.ok_or_else(|| QuantizeError::NotANumber { name: name() })?;
            all = Change { error: all.error + change.error, size: all.size + change.size };
        }
        push(&piece)?;
    }
    Ok(all)
}

/// Makes rows of one tensor, on one thread.
struct Maker<'a> {
    planned: &'a Planned,
    packer: Packer,
    stored: Vec<u8>,  // a row as the source has it
    row: Vec<u8>,     // as the file will have it
    before: Vec<f32>, // (cols)
    after: Vec<f32>,  // (cols)
    change: Change,
}

impl<'a> Maker<'a> {
    fn new(planned: &'a Planned) -> Maker<'a> {
        let values = vec![0.0; planned.tensor.cols()];
        let (before, after) = (values.clone(), values);
        let (packer, change) = (Packer::default(), Change::default());
        Maker { planned, packer, stored: Vec::new(), row: Vec::new(), before, after, change }
    }

    /// Groups of 16 rows from `first` on; none where something is not a number.
    fn make(mut self, first: usize, group_bytes: usize, out: &mut [u8]) -> Option<Change> {
        let (rows, _) = self.planned.matrices();
        let groups = rows.div_ceil(LANES); // of a matrix
        for (index, out) in out.chunks_mut(group_bytes).enumerate() {
            let (matrix, group) = ((first + index) / groups, (first + index) % groups);
            for lane in 0..LANES.min(rows - group * LANES) {
                self.fill_row(matrix * rows + group * LANES + lane)?;
                match self.planned.lies {
                    Lies::Rows | Lies::Tiles => {
                        out[lane * self.row.len()..][..self.row.len()].copy_from_slice(&self.row)
                    }
                    Lies::Panels => self.packer.put(self.planned.format, &self.row, lane, out),
                }
            }
            if self.planned.lies == Lies::Panels && !is_sound(self.planned.format, out) {
                return None;
            }
        }
        Some(self.change)
    }

    fn fill_row(&mut self, row: usize) -> Option<()> {
        let Planned { tensor, format, .. } = self.planned;
        self.row.clear();
        if tensor.format == *format {
            self.row.extend_from_slice(tensor.row_blocks(row, &mut self.stored));
            return Some(());
        }
        tensor.row_f32(row, &mut self.before);
        if !self.before.iter().all(|value| value.is_finite())
            || !fit_row(*format, &self.before, &mut self.row)
        {
            return None;
        }
        dequantize_row(*format, &self.row, &mut self.after);
        for (before, after) in self.before.iter().zip(&self.after) {
            let (before, after) = (f64::from(*before), f64::from(*after));
            self.change.error += (before - after).powi(2);
            self.change.size += before.powi(2);
        }
        Some(())
    }
}

fn note(done: &mut Done, planned: &Planned, change: Change) {
    let name = planned.tensor.name.as_str();
    let in_layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
    let kind: &mut Kind = done.kinds.entry(in_layer.map_or(name, |(_, name)| name).to_owned()).or_default();
    kind.tensors += 1;
    kind.before += planned.tensor.bytes() as u64;
    kind.after += planned.bytes();
    kind.error += change.error;
    kind.size += change.size;
    let formats = (planned.tensor.format.name(), planned.format.name());
    if !kind.formats.contains(&formats) {
        kind.formats.push(formats);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
