//! The tensor table against the architecture: what a device will ask for is there, in the exact shape and
//! in a format it may have, and nothing is there that would be silently left out.

use super::error::{Fault, LoadError, quoted};
use super::{ModelFile, Tensor};
use crate::model::config::{Arch, Config, Experts};
use std::collections::HashSet;

/// A tensor that an architecture has.
struct Wanted {
    name: String,
    shape: Vec<usize>,
    kind: Kind,
    optional: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Matrix, // any format
    Vector, // norms, biases and sinks: used as they are, so unquantised
}

pub(super) fn table(model: &ModelFile) -> Result<(), LoadError> {
    let wanted = wanted(&model.config);
    for want in &wanted {
        match model.table.get(&want.name) {
            Some(tensor) => compare(want, tensor).map_err(|fault| fault.of(tensor.file()))?,
            None if want.optional => (),
            None => return Err(missing(want).of(&model.path)),
        }
    }
    let names: HashSet<&str> = wanted.iter().map(|want| want.name.as_str()).collect();
    match model.table.values().find(|tensor| !names.contains(tensor.name.as_str())) {
        None => Ok(()),
        Some(extra) => {
            let expected = format!("only tensors of the {} architecture", model.config.arch.gguf_name());
            Err(Fault::unsupported(quoted(&extra.name), "in the file", expected).of(extra.file()))
        }
    }
}

/// Name and shape of every tensor that a model with this configuration can have.
pub(super) fn shapes(config: &Config) -> Vec<(String, Vec<usize>)> {
    let wanted = wanted(config).into_iter().filter(|want| want.name != "rope_freqs.weight");
    wanted.map(|want| (want.name, want.shape)).collect()
}

/// The name of every tensor that a model with this configuration can have, and whether it is a matrix, as it is loaded.
pub(super) fn in_order(config: &Config) -> impl Iterator<Item = (String, bool)> + use<> {
    wanted(config).into_iter().map(|want| (want.name, want.kind == Kind::Matrix))
}

fn missing(want: &Wanted) -> Fault {
    Fault::missing(quoted(&want.name), format!("a tensor of {:?}", want.shape))
}

fn compare(want: &Wanted, tensor: &Tensor) -> Result<(), Fault> {
    if tensor.shape != want.shape {
        let field = format!("the shape of {}", quoted(&tensor.name));
        return Err(Fault::damaged(field, format!("{:?}", tensor.shape), format!("{:?}", want.shape)));
    }
    if want.kind == Kind::Vector && !tensor.format.is_float() {
        let field = format!("the format of {}", quoted(&tensor.name));
        return Err(Fault::unsupported(field, tensor.format.name(), "F32, F16 or BF16"));
    }
    Ok(())
}

/// Every tensor of a model with this configuration.
fn wanted(config: &Config) -> Vec<Wanted> {
    let mut list = List { wanted: Vec::new(), prefix: String::new() };
    list.matrix("token_embd.weight", &[config.vocab, config.hidden]);
    list.vector("output_norm.weight", &[config.hidden]);
    list.optional("output.weight", &[config.vocab, config.hidden], Kind::Matrix);
    if config.arch == Arch::Llama {
        list.optional("rope_freqs.weight", &[config.head_dim / 2], Kind::Vector);
    }
    for layer in 0..config.layers {
        list.prefix = format!("blk.{layer}.");
        attention(&mut list, config);
        list.vector("ffn_norm.weight", &[config.hidden]);
        match &config.experts {
            None => mlp(&mut list, config),
            Some(experts) => mixture(&mut list, config, experts),
        }
    }
    list.wanted
}

fn attention(list: &mut List, config: &Config) {
    let (hidden, q, kv) = (config.hidden, config.heads * config.head_dim, config.kv_heads * config.head_dim);
    list.vector("attn_norm.weight", &[hidden]);
    list.matrix("attn_q.weight", &[q, hidden]);
    list.matrix("attn_k.weight", &[kv, hidden]);
    list.matrix("attn_v.weight", &[kv, hidden]);
    list.matrix("attn_output.weight", &[hidden, q]);
    if matches!(config.arch, Arch::Qwen2 | Arch::GptOss) {
        list.vector("attn_q.bias", &[q]);
        list.vector("attn_k.bias", &[kv]);
        list.vector("attn_v.bias", &[kv]);
    }
    if matches!(config.arch, Arch::Qwen3 | Arch::Qwen3Moe) {
        list.vector("attn_q_norm.weight", &[config.head_dim]);
        list.vector("attn_k_norm.weight", &[config.head_dim]);
    }
    if config.arch == Arch::GptOss {
        list.vector("attn_output.bias", &[hidden]);
        list.vector("attn_sinks.weight", &[config.heads]);
    }
}

fn mlp(list: &mut List, config: &Config) {
    list.matrix("ffn_gate.weight", &[config.ffn, config.hidden]);
    list.matrix("ffn_up.weight", &[config.ffn, config.hidden]);
    list.matrix("ffn_down.weight", &[config.hidden, config.ffn]);
}

fn mixture(list: &mut List, config: &Config, experts: &Experts) {
    let (count, hidden, ffn) = (experts.count, config.hidden, config.ffn);
    list.matrix("ffn_gate_inp.weight", &[count, hidden]);
    list.matrix("ffn_gate_exps.weight", &[count, ffn, hidden]);
    list.matrix("ffn_up_exps.weight", &[count, ffn, hidden]);
    list.matrix("ffn_down_exps.weight", &[count, hidden, ffn]);
    if config.arch == Arch::GptOss {
        list.vector("ffn_gate_inp.bias", &[count]);
        list.vector("ffn_gate_exps.bias", &[count, ffn]);
        list.vector("ffn_up_exps.bias", &[count, ffn]);
        list.vector("ffn_down_exps.bias", &[count, hidden]);
    }
}

/// Collects what is wanted; `prefix` names the layer.
struct List {
    wanted: Vec<Wanted>,
    prefix: String,
}

impl List {
    fn push(&mut self, name: &str, shape: &[usize], kind: Kind, optional: bool) {
        let name = format!("{}{name}", self.prefix);
        self.wanted.push(Wanted { name, shape: shape.to_vec(), kind, optional });
    }

    fn matrix(&mut self, name: &str, shape: &[usize]) {
        self.push(name, shape, Kind::Matrix, false);
    }

    fn vector(&mut self, name: &str, shape: &[usize]) {
        self.push(name, shape, Kind::Vector, false);
    }

    fn optional(&mut self, name: &str, shape: &[usize], kind: Kind) {
        self.push(name, shape, kind, true);
    }
}
