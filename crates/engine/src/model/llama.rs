//! Llama 2 and 3, SmolLM2 and their kin: the plain dense transformer.

use super::loaded::{Loader, ModelError};
use super::{Ffn, Model, State, Whole};
use crate::batch::Batch;
use crate::device::{Attention, Device, Head, Mlp};
use crate::model::config::{Config, Rope};

pub struct Llama<D: Device> {
    rope: Rope,
    embedding: D::Table,
    layers: Vec<(Attention<D>, Mlp<D>)>,
    head: Head<D>,
}

impl<D: Device> Llama<D> {
    pub fn load(loader: &mut Loader<'_, D>) -> Result<Llama<D>, ModelError> {
        Ok(Llama {
            rope: loader.file.config.rope.clone(),
            embedding: loader.embedding()?,
            layers: loader.layers(|loader, layer| Ok((loader.attention(layer)?, loader.mlp(layer)?)))?,
            head: loader.head()?,
        })
    }
}

impl<D: Device> Model<D> for Llama<D> {
    fn forward(&self, device: &mut D, batch: &Batch, state: &mut State<D>) {
        let State { x, qkv, attended, inner, logits, cache } = state;
        if device.forward_alone(batch, logits) {
            return;
        }
        device.begin(&self.rope, batch);
        device.embed(&self.embedding, batch, x);
        for (attention, mlp) in &self.layers {
            device.qkv(attention, x, batch, qkv, cache);
            device.attend(attention, qkv, batch, cache, attended);
            device.project_add(&attention.out, attention.out_bias.as_ref(), attended, x, batch);
            device.gate_up(mlp, x, inner, batch);
            device.project_add(&mlp.down, None, inner, x, batch);
        }
        device.head(&self.head, x, batch, logits);
    }

    fn ready(&self, device: &mut D, config: &Config, state: &State<D>) {
        let layers = self.layers.iter().map(|(attention, mlp)| (attention, Ffn::Mlp(mlp))).collect();
        let Self { rope, embedding, head, .. } = self;
        device.alone_ready(&Whole { rope, embedding, layers, head }, config, &state.cache);
    }
}
