//! W3C trace context: which larger work a request belongs to.

use crate::ids::{hex, random};

/// `00-TRACE-SPAN-FLAGS`, with a span of our own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    pub id: String,             // 32 hexadecimal digits
    pub span: String,           // 16
    pub parent: Option<String>, // the caller's span
    flags: String,
}

impl Trace {
    /// Goes on with the caller's trace; begins one if there is none, or none that can be read. One that begins
    /// here is `kept` if there is somewhere to keep it.
    pub fn continued(traceparent: Option<&str>, kept: bool) -> Trace {
        let span = new_span();
        match traceparent.and_then(parse) {
            Some((id, parent, flags)) => Trace { id, span, parent: Some(parent), flags },
            None => {
                let flags = if kept { "01" } else { "00" };
                Trace { id: hex(&random::<16>()), span, parent: None, flags: flags.to_owned() }
            }
        }
    }

    /// Whether spans of this trace are wanted.
    pub fn is_sampled(&self) -> bool {
        u8::from_str_radix(&self.flags, 16).is_ok_and(|flags| flags & 1 == 1)
    }

    pub fn header(&self) -> String {
        format!("00-{}-{}-{}", self.id, self.span, self.flags)
    }
}

/// The id of a span that begins.
pub fn new_span() -> String {
    hex(&random::<8>())
}

/// The trace, the caller's span, and the flags.
fn parse(traceparent: &str) -> Option<(String, String, String)> {
    let mut parts = traceparent.split('-');
    let version = lower_hex(parts.next()?, 2)?;
    let id = lower_hex(parts.next()?, 32)?;
    let parent = lower_hex(parts.next()?, 16)?;
    let flags = lower_hex(parts.next()?, 2)?;
    let zero = |digits: &str| digits.bytes().all(|digit| digit == b'0');
    let more = parts.next().is_some();
    // Only versions to come may have more.
    let wrong = version == "ff" || (version == "00" && more) || zero(id) || zero(parent);
    (!wrong).then(|| (id.to_owned(), parent.to_owned(), flags.to_owned()))
}

fn lower_hex(text: &str, len: usize) -> Option<&str> {
    let digits = text.len() == len && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    digits.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn a_trace_goes_on_with_a_span_of_our_own() {
        let trace = Trace::continued(Some(&format!("00-{ID}-00f067aa0ba902b7-01")), false);
        assert_eq!(trace.id, ID);
        assert_eq!(trace.parent.as_deref(), Some("00f067aa0ba902b7"));
        assert_ne!(trace.span, "00f067aa0ba902b7");
        assert_eq!(trace.header(), format!("00-{ID}-{}-01", trace.span));
        let newer = Trace::continued(Some(&format!("01-{ID}-00f067aa0ba902b7-01-more")), false);
        assert_eq!(newer.id, ID);
    }

    #[test]
    fn the_caller_decides_whether_it_is_sampled() {
        let sampled = |parent: Option<&str>, kept| Trace::continued(parent, kept).is_sampled();
        for (flags, expected) in [("00", false), ("01", true), ("02", false), ("ff", true)] {
            assert_eq!(
                sampled(Some(&format!("00-{ID}-00f067aa0ba902b7-{flags}")), true),
                expected,
                "{flags}"
            );
        }
        assert!(sampled(None, true) && !sampled(None, false));
    }

    #[test]
    fn what_cannot_be_read_begins_another() {
        let zero = "0".repeat(32);
        for bad in [
            "",
            "-",
            "00",
            &format!("ff-{ID}-00f067aa0ba902b7-01"),
            &format!("00-{ID}-00f067aa0ba902b7-01-more"),
            &format!("00-{zero}-00f067aa0ba902b7-01"),
            &format!("00-{ID}-0000000000000000-01"),
            &format!("00-{}-00f067aa0ba902b7-01", ID.to_uppercase()),
            &format!("00-{ID}-00f067aa0ba902b7-0g"),
        ] {
            let trace = Trace::continued(Some(bad), false);
            assert!(trace.id != ID && trace.id.len() == 32 && trace.parent.is_none(), "{bad}");
        }
    }
}
