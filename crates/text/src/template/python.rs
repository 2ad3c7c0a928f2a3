//! The Python that chat templates expect to run in: filters, methods and functions beyond plain Jinja.

use super::meter::{add_filter, charge, size, text_of};
use super::{date, json, operators};
use crate::limits::TEMPLATE_DEPTH_MAX;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior, Value, filters, functions};
use minijinja_contrib::pycompat;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// What `raise_exception` puts before its message, so that a refusal is told from a fault.
pub(super) const REFUSAL: &str = "refused: ";

/// The whitespace rules under which `transformers` renders chat templates.
pub(super) fn syntax() -> SyntaxConfig {
    let mut builder = SyntaxConfig::builder();
    builder.trim_blocks(true).lstrip_blocks(true);
    builder.build().unwrap_or_default()
}

/// `now_unix_s` is read at each call of `strftime_now`.
pub(super) fn environment(now_unix_s: Arc<AtomicI64>) -> Environment<'static> {
    let mut env = Environment::empty();
    env.set_recursion_limit(TEMPLATE_DEPTH_MAX);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_syntax(syntax());
    env.set_debug(false);
    env.set_formatter(|out, state, value| {
        let text = text_of(state, value)?;
        out.write_str(&text).map_err(Error::from)
    });
    env.set_unknown_method_callback(call_method);
    operators::install(&mut env);
    install_filters(&mut env);
    install_tests(&mut env);
    install_functions(&mut env, now_unix_s);
    env
}

fn install_functions(env: &mut Environment, now_unix_s: Arc<AtomicI64>) {
    env.add_function("namespace", functions::namespace);
    env.add_function("dict", functions::dict);
    env.add_function("range", |state: &mut State, args: Rest<Value>| -> Result<Value, Error> {
        let range = Value::from_function(functions::range).call(state, &args)?;
        charge(state, size(&range))?;
        Ok(range)
    });
    env.add_function("strftime_now", move |format: &str| {
        date::format(now_unix_s.load(Ordering::Relaxed), format)
    });
    env.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, format!("{REFUSAL}{message}")))
    });
}

fn install_filters(env: &mut Environment) {
    let plain = [
        ("abs", Value::from_function(filters::abs)),
        ("attr", Value::from_function(filters::attr)),
        ("bool", Value::from_function(filters::bool)),
        ("capitalize", Value::from_function(filters::capitalize)),
        ("count", Value::from_function(filters::length)),
        ("d", Value::from_function(filters::default)),
        ("default", Value::from_function(filters::default)),
        ("dictsort", Value::from_function(filters::dictsort)),
        ("first", Value::from_function(filters::first)),
        ("float", Value::from_function(filters::float)),
        ("int", Value::from_function(filters::int)),
        ("items", Value::from_function(filters::items)),
        ("last", Value::from_function(filters::last)),
        ("length", Value::from_function(filters::length)),
        ("list", Value::from_function(filters::list)),
        ("lower", Value::from_function(filters::lower)),
        ("map", Value::from_function(filters::map)),
        ("max", Value::from_function(filters::max)),
        ("min", Value::from_function(filters::min)),
        ("reject", Value::from_function(filters::reject)),
        ("rejectattr", Value::from_function(filters::rejectattr)),
        ("reverse", Value::from_function(filters::reverse)),
        ("round", Value::from_function(filters::round)),
        ("safe", Value::from_function(|value: Value| value)),
        ("select", Value::from_function(filters::select)),
        ("selectattr", Value::from_function(filters::selectattr)),
        ("sort", Value::from_function(filters::sort)),
        ("split", Value::from_function(filters::split)),
        ("sum", Value::from_function(filters::sum)),
        ("title", Value::from_function(filters::title)),
        ("trim", Value::from_function(filters::trim)),
        ("unique", Value::from_function(filters::unique)),
        ("upper", Value::from_function(filters::upper)),
    ];
    for (name, filter) in plain {
        add_filter(env, name, filter);
    }
    env.add_filter("string", string);
    env.add_filter("indent", indent);
    env.add_filter("join", join);
    env.add_filter("replace", replace);
    env.add_filter("tojson", tojson);
}

fn install_tests(env: &mut Environment) {
    use minijinja::tests as is;
    env.add_test("defined", is::is_defined);
    env.add_test("undefined", is::is_undefined);
    env.add_test("none", is::is_none);
    env.add_test("boolean", is::is_boolean);
    env.add_test("odd", is::is_odd);
    env.add_test("even", is::is_even);
    env.add_test("divisibleby", is::is_divisibleby);
    env.add_test("number", is::is_number);
    env.add_test("integer", is::is_integer);
    env.add_test("float", is::is_float);
    env.add_test("string", is::is_string);
    // To Jinja in Python, text, lists and dictionaries are all sequences, and None is not iterable.
    env.add_test("sequence", |value: &Value| value.len().is_some());
    env.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    env.add_test("mapping", is::is_mapping);
    env.add_test("true", is::is_true);
    env.add_test("false", is::is_false);
    env.add_test("eq", is::is_eq);
    env.add_test("equalto", is::is_eq);
    env.add_test("==", is::is_eq);
    env.add_test("ne", is::is_ne);
    env.add_test("!=", is::is_ne);
    env.add_test("in", is::is_in);
    env.add_test("startingwith", is::is_startingwith);
    env.add_test("endingwith", is::is_endingwith);
    env.add_test("lower", is::is_lower);
    env.add_test("upper", is::is_upper);
}

/// Python's methods. Those whose result can outgrow their input are done here, and paid for; `format` only goes
/// without format specifications, which can ask for any width.
fn call_method(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    match (method, args) {
        ("replace", [from, to]) => replace(state, value.clone(), from.clone(), to.clone()),
        ("join", [list]) => {
            join(state, list.clone(), Some(value.clone()), Kwargs::from_iter([] as [(&str, Value); 0]))
        }
        ("format", _) if value.as_str().is_some_and(|text| !text.contains(':')) => {
            charge(state, args.iter().map(size).sum())?;
            pycompat::unknown_method_callback(state, value, method, args)
        }
        ("format" | "replace" | "join" | "zfill" | "center" | "ljust" | "rjust" | "expandtabs", _) => Err(
            Error::new(ErrorKind::UnknownMethod, format!("{method} is not supported with these arguments")),
        ),
        _ => {
            charge(state, size(value).saturating_mul(if method.starts_with("split") { 32 } else { 1 }))?;
            pycompat::unknown_method_callback(state, value, method, args)
        }
    }
}

fn string(state: &mut State, value: Value) -> Result<Value, Error> {
    Ok(Value::from(text_of(state, &value)?))
}

fn replace(state: &mut State, value: Value, from: Value, to: Value) -> Result<Value, Error> {
    let (text, from, to) = (text_of(state, &value)?, text_of(state, &from)?, text_of(state, &to)?);
    let count = text.matches(&from).count();
    charge(state, text.len().saturating_add(count.saturating_mul(to.len())))?;
    Ok(Value::from(text.replace(&from, &to)))
}

fn join(state: &mut State, list: Value, glue: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let attribute: Option<String> = kwargs.get("attribute")?;
    kwargs.assert_all_used()?;
    let glue = glue.map(|g| text_of(state, &g)).transpose()?.unwrap_or_default();
    let mut text = String::new();
    for (at, item) in list.try_iter()?.enumerate() {
        let item = attribute.as_ref().map_or(Ok(item.clone()), |name| item.get_attr(name))?;
        let item = text_of(state, &item)?;
        charge(state, glue.len())?;
        if at > 0 {
            text.push_str(&glue);
        }
        text.push_str(&item);
    }
    Ok(Value::from(text))
}

fn indent(state: &mut State, text: &str, width: Option<usize>, kwargs: Kwargs) -> Result<Value, Error> {
    let width = width.or(kwargs.get("width")?).unwrap_or(4);
    let first: Option<bool> = kwargs.get("first")?;
    kwargs.assert_all_used()?;
    let lines = text.split('\n').count();
    charge(state, text.len().saturating_add(lines.saturating_mul(width)))?;
    let margin = " ".repeat(width);
    let indented = text.split('\n').enumerate().map(|(at, line)| {
        let skip = line.is_empty() || (at == 0 && first != Some(true));
        if skip { line.to_owned() } else { format!("{margin}{line}") }
    });
    Ok(Value::from(indented.collect::<Vec<_>>().join("\n")))
}

fn tojson(state: &mut State, value: Value, kwargs: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    let mut style = json::Style::new(indent.map(|width| width.min(16)));
    style.ensure_ascii = kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    style.sort_keys = kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    if let Some(separators) = kwargs.get::<Option<Vec<String>>>("separators")? {
        let [item, key] = separators
            .try_into()
            .map_err(|_| Error::new(ErrorKind::InvalidOperation, "tojson: separators are two strings"))?;
        (style.item, style.key) = (item, key);
    }
    kwargs.assert_all_used()?;
    let text = json::dumps(&value, &style)?;
    charge(state, text.len())?;
    Ok(Value::from(text))
}
