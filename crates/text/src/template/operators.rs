//! The operators that make text or lists, with Python's meaning, each paid for from the render's budget.

use super::meter::{charge, size, text_of};
use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, State, Value};

pub(super) fn install(env: &mut Environment) {
    env.add_filter("+", add);
    env.add_filter("*", multiply);
    env.add_filter("~", concatenate);
    env.add_filter("[:]", slice);
}

fn add(state: &mut State, left: Value, right: Value) -> Result<Value, Error> {
    if let (Some(a), Some(b)) = (left.as_str(), right.as_str()) {
        charge(state, a.len().saturating_add(b.len()))?;
        return Ok(Value::from([a, b].concat()));
    }
    if is_list(&left) && is_list(&right) {
        charge(state, size(&left).saturating_add(size(&right)))?;
        return Ok(left.try_iter()?.chain(right.try_iter()?).collect());
    }
    arithmetic("+", &left, &right, i128::checked_add, |a, b| a + b)
}

fn multiply(state: &mut State, left: Value, right: Value) -> Result<Value, Error> {
    let times = |value: &Value| value.as_i64().map(|n| usize::try_from(n).unwrap_or(0));
    let (repeated, count) = match (times(&left), times(&right)) {
        (None, Some(count)) => (&left, count),
        (Some(count), None) => (&right, count),
        _ => return arithmetic("*", &left, &right, i128::checked_mul, |a, b| a * b),
    };
    if let Some(text) = repeated.as_str() {
        charge(state, text.len().saturating_mul(count))?;
        return Ok(Value::from(text.repeat(count)));
    }
    if !is_list(repeated) {
        return arithmetic("*", &left, &right, i128::checked_mul, |a, b| a * b);
    }
    charge(state, size(repeated).saturating_mul(count))?;
    let items: Vec<Value> = repeated.try_iter()?.collect();
    Ok(std::iter::repeat_n(items, count).flatten().collect())
}

fn concatenate(state: &mut State, left: Value, right: Value) -> Result<Value, Error> {
    let mut text = text_of(state, &left)?;
    text.push_str(&text_of(state, &right)?);
    Ok(Value::from(text))
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) && value.len().is_some()
}

fn arithmetic(
    operator: &str,
    left: &Value,
    right: &Value,
    whole: fn(i128, i128) -> Option<i128>,
    real: fn(f64, f64) -> f64,
) -> Result<Value, Error> {
    let wrong = |problem: String| Err(Error::new(ErrorKind::InvalidOperation, problem));
    let numbers = left.kind() == ValueKind::Number && right.kind() == ValueKind::Number;
    if !numbers {
        return wrong(format!("cannot use {operator} on {} and {}", left.kind(), right.kind()));
    }
    if left.is_integer() && right.is_integer() {
        let result = whole(i128::try_from(left.clone())?, i128::try_from(right.clone())?);
        return match result {
            Some(result) => Ok(Value::from(result)),
            None => wrong(format!("the result of {operator} is too large")),
        };
    }
    Ok(Value::from(real(f64::try_from(left.clone())?, f64::try_from(right.clone())?)))
}

/// Python's `value[start:stop:step]`, for text and lists.
fn slice(state: &mut State, value: Value, start: Value, stop: Value, step: Value) -> Result<Value, Error> {
    charge(state, size(&value))?;
    let step = bound(&step)?.unwrap_or(1);
    let (start, stop) = (bound(&start)?, bound(&stop)?);
    if step == 0 {
        return Err(Error::new(ErrorKind::InvalidOperation, "a slice cannot have the step 0"));
    }
    if value.is_undefined() || value.is_none() {
        return Ok(Value::from(Vec::<Value>::new()));
    }
    if let Some(text) = value.as_str() {
        let chars: Vec<char> = text.chars().collect();
        return Ok(Value::from(
            indices(chars.len(), start, stop, step).map(|i| chars[i]).collect::<String>(),
        ));
    }
    let items: Vec<Value> = value.try_iter()?.collect();
    Ok(indices(items.len(), start, stop, step).map(|i| items[i].clone()).collect())
}

fn bound(value: &Value) -> Result<Option<i64>, Error> {
    if value.is_none() || value.is_undefined() { Ok(None) } else { Ok(Some(i64::try_from(value.clone())?)) }
}

/// The positions that a slice of `len` items takes, all below `len`.
fn indices(len: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> impl Iterator<Item = usize> {
    let len = len as i64;
    let clamp =
        |at: i64, low: i64, high: i64| (if at < 0 { at.saturating_add(len) } else { at }).clamp(low, high);
    let (first, end) = if step > 0 {
        (start.map_or(0, |s| clamp(s, 0, len)), stop.map_or(len, |s| clamp(s, 0, len)))
    } else {
        (start.map_or(len - 1, |s| clamp(s, -1, len - 1)), stop.map_or(-1, |s| clamp(s, -1, len - 1)))
    };
    let inside = move |at: &i64| if step > 0 { *at < end } else { *at > end };
    std::iter::successors(Some(first), move |at| at.checked_add(step))
        .take_while(inside)
        .map(|at| at as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_as_python_does() {
        let take = |start, stop, step| indices(5, start, stop, step).collect::<Vec<_>>();
        assert_eq!(take(None, None, 1), [0, 1, 2, 3, 4]);
        assert_eq!(take(None, None, -1), [4, 3, 2, 1, 0]);
        assert_eq!(take(Some(1), Some(-1), 1), [1, 2, 3]);
        assert_eq!(take(Some(-2), None, 1), [3, 4]);
        assert_eq!(take(Some(9), Some(-9), -2), [4, 2, 0]);
        assert_eq!(take(Some(i64::MIN), Some(i64::MAX), i64::MAX), [0]);
        assert_eq!(take(Some(3), Some(1), 1), [0usize; 0]);
        assert_eq!(indices(0, None, None, -1).count(), 0);
    }
}
