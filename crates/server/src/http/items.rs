//! `/v1/responses/{id}/input_items`: what a stored response was asked, page by page.

use super::query::Query;
use super::stored::kept;
use super::{App, Failed, json};
use crate::ids::item_id;
use crate::keys::Holder;
use crate::limits::{LIST_ITEMS_DEFAULT, LIST_ITEMS_MAX};
use axum::Extension;
use axum::extract::{Path, Query as AxumQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use flint_wire::ApiError;
use serde_json::{Value, json as value};
use std::collections::HashMap;

pub async fn list(
    State(app): State<App>,
    Extension(holder): Extension<Holder>,
    Path(id): Path<String>,
    AxumQuery(query): AxumQuery<HashMap<String, String>>,
) -> Result<Response, Failed> {
    let kept = kept(&app, &id, holder.tenant).await?;
    let items: Vec<Value> = serde_json::from_str(&kept.input).unwrap_or_default();
    Ok(json(StatusCode::OK, &page(named(&id, items), &Query(&query))?))
}

/// The items with an id each: their own, or one that follows from their place.
fn named(response: &str, items: Vec<Value>) -> Vec<Value> {
    let name = |(index, mut item): (usize, Value)| {
        if item["id"].is_null() {
            item["id"] = item_id("in", response, index).into();
        }
        item
    };
    items.into_iter().enumerate().filter(|(_, item)| item.is_object()).map(name).collect()
}

/// The newest first where the client does not say, as OpenAI's lists are.
fn page(mut items: Vec<Value>, query: &Query<'_>) -> Result<Value, ApiError> {
    let limit = query.number("limit", 1..=LIST_ITEMS_MAX)?.unwrap_or(LIST_ITEMS_DEFAULT);
    match query.text("order") {
        None | Some("desc") => items.reverse(),
        Some("asc") => {}
        Some(_) => return Err(ApiError::invalid("order", "`order` must be asc or desc")),
    }
    if let Some(after) = query.text("after") {
        let at = items.iter().position(|item| item["id"] == after);
        let at = at.ok_or_else(|| ApiError::invalid("after", "`after` names no item of this list"))?;
        items.drain(..=at);
    }
    let has_more = items.len() > limit;
    items.truncate(limit);
    let id = |item: Option<&Value>| item.map(|item| item["id"].clone());
    let (first, last) = (id(items.first()), id(items.last()));
    Ok(value!({"object": "list", "data": items, "first_id": first, "last_id": last, "has_more": has_more}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &[(&str, &str)], ids: &[&str], has_more: bool) {
        let items = [value!({"n": 1}), value!({"n": 2, "id": "mine"}), value!({"n": 3})];
        let query = query.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let page = page(named("resp_ab", items.to_vec()), &Query(&query)).unwrap();
        let data = page["data"].as_array().unwrap();
        let found: Vec<&str> = data.iter().map(|item| item["id"].as_str().unwrap()).collect();
        assert_eq!(found, ids);
        assert_eq!(page["has_more"], has_more);
        assert_eq!(page["first_id"].as_str(), ids.first().copied());
        assert_eq!(page["last_id"].as_str(), ids.last().copied());
    }

    #[test]
    fn pages_go_in_either_order() {
        check(&[], &["in_ab0002", "mine", "in_ab0000"], false);
        check(&[("order", "asc")], &["in_ab0000", "mine", "in_ab0002"], false);
        check(&[("order", "asc"), ("limit", "2")], &["in_ab0000", "mine"], true);
        check(&[("order", "asc"), ("limit", "2"), ("after", "mine")], &["in_ab0002"], false);
        check(&[("after", "in_ab0000")], &[], false);
    }

    #[test]
    fn a_wrong_page_is_refused_in_words() {
        let refused = |key: &str, value: &str| {
            let query = HashMap::from([(key.to_string(), value.to_string())]);
            page(Vec::new(), &Query(&query)).unwrap_err().message
        };
        assert_eq!(refused("limit", "0"), "`limit` must be a whole number from 1 to 100");
        assert_eq!(refused("order", "up"), "`order` must be asc or desc");
        assert_eq!(refused("after", "nobody"), "`after` names no item of this list");
    }
}
