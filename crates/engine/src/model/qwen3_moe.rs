//! Qwen3-Coder-30B-A3B and its kin: heads of q and k normalised, a mixture of experts in each layer.

use super::loaded::{Loader, ModelError};
use super::{Ffn, Model, State, Whole};
use crate::batch::Batch;
use crate::device::{Activation, Attention, Device, Head, Mixture};
use crate::model::config::{Config, Rope};

pub struct Qwen3Moe<D: Device> {
    rope: Rope,
    embedding: D::Table,
    layers: Vec<(Attention<D>, Mixture<D>)>,
    head: Head<D>,
}

impl<D: Device> Qwen3Moe<D> {
    pub fn load(loader: &mut Loader<'_, D>) -> Result<Qwen3Moe<D>, ModelError> {
        Ok(Qwen3Moe {
            rope: loader.file.config.rope.clone(),
            embedding: loader.embedding()?,
            layers: loader.layers(|loader, layer| {
                Ok((loader.attention(layer)?, loader.mixture(layer, Activation::Swiglu)?))
            })?,
            head: loader.head()?,
        })
    }
}

impl<D: Device> Model<D> for Qwen3Moe<D> {
    fn forward(&self, device: &mut D, batch: &Batch, state: &mut State<D>) {
        let State { x, qkv, attended, logits, cache, .. } = state;
        if device.forward_alone(batch, logits) {
            return;
        }
        device.begin(&self.rope, batch);
        device.embed(&self.embedding, batch, x);
        for (attention, mixture) in &self.layers {
            device.qkv(attention, x, batch, qkv, cache);
            device.attend(attention, qkv, batch, cache, attended);
            device.project_add(&attention.out, attention.out_bias.as_ref(), attended, x, batch);
            device.mixture(mixture, x, batch);
        }
        device.head(&self.head, x, batch, logits);
    }

    fn ready(&self, device: &mut D, config: &Config, state: &State<D>) {
        let layers =
            self.layers.iter().map(|(attention, mixture)| (attention, Ffn::Mixture(mixture))).collect();
        let Self { rope, embedding, head, .. } = self;
        device.alone_ready(&Whole { rope, embedding, layers, head }, config, &state.cache);
    }
}
