//! Dates for templates that tell the model what day it is.

use crate::limits::DATE_FORMAT_BYTES_MAX;
use minijinja::{Error, ErrorKind};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// A moment in UTC, as a calendar has it.
struct Moment {
    year: i64,
    month: usize, // 1 to 12
    day: i64,
    weekday: usize, // 0 is Sunday
    second: i64,    // of the day
}

/// `strftime` for the directives that chat templates use.
pub(super) fn format(now_unix_s: i64, format: &str) -> Result<String, Error> {
    if format.len() > DATE_FORMAT_BYTES_MAX {
        return Err(Error::new(ErrorKind::InvalidOperation, "strftime_now: the format is too long"));
    }
    let moment = Moment::new(now_unix_s);
    let mut text = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        let directive = chars.next().unwrap_or('%');
        let part = moment.part(directive).ok_or_else(|| {
            let problem = format!("strftime_now: %{directive} is not supported");
            Error::new(ErrorKind::InvalidOperation, problem)
        })?;
        text.push_str(&part);
    }
    Ok(text)
}

/// The day as `2026-11-15`.
pub fn day(now_unix_s: i64) -> String {
    let Moment { year, month, day, .. } = Moment::new(now_unix_s);
    format!("{year}-{month:02}-{day:02}")
}

impl Moment {
    /// The Gregorian calendar counts from 1 March of year 0, so that a leap day ends its year.
    fn new(unix_s: i64) -> Self {
        let days = unix_s.div_euclid(86_400);
        let shifted = days.saturating_add(719_468);
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        Moment {
            year: era * 400 + year_of_era + i64::from(month <= 2),
            month: month as usize,
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
            weekday: (days + 4).rem_euclid(7) as usize,
            second: unix_s.rem_euclid(86_400),
        }
    }

    fn part(&self, directive: char) -> Option<String> {
        let short = |name: &str| name.chars().take(3).collect::<String>();
        Some(match directive {
            'Y' => self.year.to_string(),
            'y' => format!("{:02}", self.year.rem_euclid(100)),
            'm' => format!("{:02}", self.month),
            'd' => format!("{:02}", self.day),
            'B' => MONTHS[self.month - 1].to_owned(),
            'b' => short(MONTHS[self.month - 1]),
            'A' => DAYS[self.weekday].to_owned(),
            'a' => short(DAYS[self.weekday]),
            'H' => format!("{:02}", self.second / 3600),
            'I' => format!("{:02}", (self.second / 3600 + 11) % 12 + 1),
            'p' => if self.second < 43_200 { "AM" } else { "PM" }.to_owned(),
            'M' => format!("{:02}", self.second / 60 % 60),
            'S' => format!("{:02}", self.second % 60),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn tells_the_date() {
        let at = |unix_s, f| super::format(unix_s, f).unwrap();
        assert_eq!(at(0, "%Y-%m-%d %A"), "1970-01-01 Thursday");
        assert_eq!(at(951_782_400, "%d %b %Y"), "29 Feb 2000");
        assert_eq!(at(1_794_745_799, "%a %d %B %y %H:%M:%S %I%p %%"), "Sun 15 November 26 12:29:59 12PM %");
        assert_eq!(at(-1, "%Y-%m-%d %S"), "1969-12-31 59");
        assert!(super::format(0, "%Q").is_err());
        assert!(super::format(i64::MAX, "%Y").is_ok() && super::format(i64::MIN, "%Y").is_ok());
    }
}
