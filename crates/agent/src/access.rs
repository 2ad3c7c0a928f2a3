//! Which of the models that a server lists it would serve to this key: each is asked to count a word's tokens, which costs nothing.

use crate::client::{Client, ClientError};
use crate::limits::{MODELS_TRIED_MAX, TRY_SECONDS_MAX};
use crate::talk::ModelState;
use serde_json::json;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Says of each model why it is refused, if it is. A server that cannot count, or is slow, refuses nothing.
pub(crate) async fn try_all(client: &Client, models: &mut [ModelState]) {
    let mut tried = JoinSet::new();
    for (index, model) in models.iter().enumerate().take(MODELS_TRIED_MAX) {
        let answer = client.post("responses/input_tokens", json!({"model": model.name, "input": "hello"}));
        tried.spawn(async move { (index, answer.await) });
    }
    let all = async {
        while let Some(Ok((index, answer))) = tried.join_next().await {
            models[index].refused = answer.err().as_ref().and_then(why);
        }
    };
    let _ = timeout(Duration::from_secs(TRY_SECONDS_MAX), all).await;
}

/// What is about the model, or about who asks for it.
fn why(error: &ClientError) -> Option<String> {
    match error {
        ClientError::Refused(refusal) if refusal.is_about_model() || refusal.status == Some(403) => {
            Some(refusal.message.clone())
        }
        _ => None,
    }
}
