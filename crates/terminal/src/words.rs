//! Numbers, times and rules in words.

use flint_agent::rules::{Rule, Scope, Word};
use std::time::{Duration, SystemTime};

/// Short, and as exact as matters.
pub fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    match time.as_millis() {
        millis @ 0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{:.1} s", time.as_secs_f64()),
        60_000..3_600_000 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// With its thousands apart.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Of how many a part is, if there are any.
pub fn percent(part: u64, whole: u64) -> Option<u64> {
    (whole > 0).then(|| (u128::from(part) * 100 / u128::from(whole)) as u64)
}

/// All that a rule allows: which commands, where, and how long. `Rule::told` counts days from now; a frame has no clock.
pub fn rule(rule: &Rule) -> String {
    let written = |words: &[Word]| words.iter().map(Word::to_string).collect::<Vec<_>>().join(" ");
    let commands = match rule.argv.as_slice() {
        [Word::Any] => "every command".to_owned(),
        [words @ .., Word::Any] => format!("every command that begins with `{}`", written(words)),
        words => format!("the command `{}` as it is", written(words)),
    };
    let confined = if rule.unconfined { " WITHOUT THE SANDBOX" } else { "" };
    let place = match rule.scope {
        Scope::Session => "in this session",
        Scope::Project => "in this folder, in later sessions too",
    };
    let end = rule.until.map_or("without end".to_owned(), |until| format!("until {}", date(until)));
    format!("{commands}{confined}, {place}, {end}")
}

/// A day and a minute, in UTC.
fn date(at: SystemTime) -> String {
    let seconds = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let (year, month, day) = civil(seconds / 86_400);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", seconds / 3600 % 24, seconds / 60 % 60)
}

/// The date of a day after 1970-01-01. Years begin in March here, so that the day that may be missing is the last one.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // since 0000-03-01
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day_of_year - (153 * from_march + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_easily() {
        assert_eq!((count(0), count(999), count(1_234_567)), ("0".into(), "999".into(), "1,234,567".into()));
        for (millis, expected) in
            [(0, "0 ms"), (999, "999 ms"), (1_500, "1.5 s"), (61_000, "1 min 1 s"), (7_260_000, "2 h 1 min")]
        {
            assert_eq!(time(Duration::from_millis(millis)), expected);
        }
        assert_eq!((percent(1, 0), percent(1, 3), percent(u64::MAX, u64::MAX)), (None, Some(33), Some(100)));
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (days, expected) in
            [(0, (1970, 1, 1)), (59, (1970, 3, 1)), (11_016, (2000, 2, 29)), (20_773, (2026, 11, 16))]
        {
            assert_eq!(civil(days), expected);
        }
    }

    #[test]
    fn a_rule_says_all_that_it_allows() {
        let argv = vec![Word::Exactly("cargo".into()), Word::Exactly("a b".into()), Word::Any];
        let until = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(20_773 * 86_400 + 3_660));
        let open = Rule { argv, scope: Scope::Project, until, unconfined: true };
        assert_eq!(
            rule(&open),
            "every command that begins with `cargo 'a b'` WITHOUT THE SANDBOX, in this folder, in later sessions too, until 2026-11-16 01:01 UTC"
        );
        let argv = vec![Word::Exactly("ls".into())];
        let exact = Rule { argv, scope: Scope::Session, until: None, unconfined: false };
        assert_eq!(rule(&exact), "the command `ls` as it is, in this session, without end");
        assert_eq!(
            rule(&Rule { argv: vec![Word::Any], ..exact }),
            "every command, in this session, without end"
        );
    }
}
