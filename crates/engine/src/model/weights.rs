//! Weights by their canonical names, brought to a device.

use super::loaded::{Loader, ModelError};
use crate::device::{Activation, Attention, Device, Head, Mixture, Mlp, Norm};
use crate::load::Tensor;

impl<D: Device> Loader<'_, D> {
    fn names(&self, layer: usize, parts: &[&str]) -> Vec<String> {
        parts.iter().map(|part| format!("blk.{layer}.{part}")).collect()
    }

    fn matrix(&mut self, layer: usize, parts: &[&str]) -> Result<D::Matrix, ModelError> {
        let tensors = self.tensors(&self.names(layer, parts))?;
        Ok(self.device.matrix(&tensors)?)
    }

    fn tensor(&mut self, layer: usize, part: &str) -> Result<Tensor, ModelError> {
        Ok(self.tensors(&self.names(layer, &[part]))?.swap_remove(0))
    }

    /// A vector that only some architectures have.
    fn vector(&mut self, layer: usize, parts: &[&str]) -> Result<Option<D::Vector>, ModelError> {
        let names = self.names(layer, parts);
        if names.iter().any(|name| self.file.find(name).is_none()) {
            return Ok(None);
        }
        let tensors = self.tensors(&names)?;
        Ok(Some(self.device.vector(&tensors)?))
    }

    fn norm(&mut self, name: &str) -> Result<Norm<D>, ModelError> {
        let tensors = self.tensors(&[name.to_string()])?;
        Ok(Norm { weight: self.device.vector(&tensors)?, eps: self.file.config.norm_eps })
    }

    fn head_norm(&mut self, layer: usize, part: &str) -> Result<Option<Norm<D>>, ModelError> {
        let eps = self.file.config.norm_eps;
        Ok(self.vector(layer, &[part])?.map(|weight| Norm { weight, eps }))
    }

    pub fn embedding(&mut self) -> Result<D::Table, ModelError> {
        let tensor = self.file.tensor("token_embd.weight")?;
        Ok(self.device.table(&tensor)?)
    }

    pub fn attention(&mut self, layer: usize) -> Result<Attention<D>, ModelError> {
        let config = &self.file.config;
        let (heads, kv_heads, head_dim) = (config.heads, config.kv_heads, config.head_dim);
        let window = config.window(layer);
        Ok(Attention {
            layer,
            heads,
            kv_heads,
            head_dim,
            window,
            norm: self.norm(&format!("blk.{layer}.attn_norm.weight"))?,
            qkv: self.matrix(layer, &["attn_q.weight", "attn_k.weight", "attn_v.weight"])?,
            qkv_bias: self.vector(layer, &["attn_q.bias", "attn_k.bias", "attn_v.bias"])?,
            q_norm: self.head_norm(layer, "attn_q_norm.weight")?,
            k_norm: self.head_norm(layer, "attn_k_norm.weight")?,
            sinks: self.vector(layer, &["attn_sinks.weight"])?,
            out: self.matrix(layer, &["attn_output.weight"])?,
            out_bias: self.vector(layer, &["attn_output.bias"])?,
        })
    }

    pub fn mlp(&mut self, layer: usize) -> Result<Mlp<D>, ModelError> {
        let norm = self.norm(&format!("blk.{layer}.ffn_norm.weight"))?;
        let (gate, up) = (self.tensor(layer, "ffn_gate.weight")?, self.tensor(layer, "ffn_up.weight")?);
        let [gate, up] = self.device.gated(&gate, &up)?;
        Ok(Mlp { norm, gate, up, down: self.matrix(layer, &["ffn_down.weight"])? })
    }

    pub fn mixture(&mut self, layer: usize, activation: Activation) -> Result<Mixture<D>, ModelError> {
        let experts = self.file.config.experts.as_ref().ok_or(ModelError::NoExperts)?;
        let (used, normalize) = (experts.used, experts.normalize);
        let (gate, up) =
            (self.tensor(layer, "ffn_gate_exps.weight")?, self.tensor(layer, "ffn_up_exps.weight")?);
        let down = self.tensor(layer, "ffn_down_exps.weight")?;
        let [gate, up] = self.device.gated_experts(&gate, &up)?;
        Ok(Mixture {
            norm: self.norm(&format!("blk.{layer}.ffn_norm.weight"))?,
            used,
            normalize,
            activation,
            router: self.matrix(layer, &["ffn_gate_inp.weight"])?,
            router_bias: self.vector(layer, &["ffn_gate_inp.bias"])?,
            gate,
            gate_bias: self.vector(layer, &["ffn_gate_exps.bias"])?,
            up,
            up_bias: self.vector(layer, &["ffn_up_exps.bias"])?,
            down: self.device.experts(&down)?,
            down_bias: self.vector(layer, &["ffn_down_exps.bias"])?,
        })
    }

    pub fn head(&mut self) -> Result<Head<D>, ModelError> {
        let name = if self.file.tied() { "token_embd.weight" } else { "output.weight" };
        let norm = self.norm("output_norm.weight")?;
        let tensors = self.tensors(&[name.to_string()])?;
        Ok(Head { norm, matrix: self.device.matrix(&tensors)? })
    }

    /// All layers, each made by `layer`.
    pub fn layers<L>(
        &mut self,
        layer: impl Fn(&mut Self, usize) -> Result<L, ModelError>,
    ) -> Result<Vec<L>, ModelError> {
        (0..self.file.config.layers).map(|index| layer(self, index)).collect()
    }
}
