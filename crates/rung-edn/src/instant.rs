//! The text form of `#inst`: a date, an optional time of any precision, and an offset.

const DAY_MS: i64 = 86_400_000;

/// Returns the days since 1970 of a date.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day is the last day.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let of_era = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    era * 146_097 + of_era - 719_468
}

/// Returns the year, month and day of a number of days since 1970.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// Formats an instant.
pub(crate) fn format_instant(ms: i64) -> String {
    let (year, month, day) = date(ms.div_euclid(DAY_MS));
    let of_day = ms.rem_euclid(DAY_MS);
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, ms) = (of_day / 1_000 % 60, of_day % 1_000);
    let sign = if year < 0 { "-" } else { "" };
    let year = year.abs();
    format!("{sign}{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}-00:00")
}

/// Parses an instant. Everything after the year is optional.
pub(crate) fn parse_instant(text: &str) -> Option<i64> {
    parse_parts(text).ok()
}

/// The text is not an instant.
struct InvalidInstant;

fn parse_parts(text: &str) -> Result<i64, InvalidInstant> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let length = digits.bytes().take_while(u8::is_ascii_digit).count();
    // The range of 64-bit milliseconds ends within nine-digit years.
    if !(4..=9).contains(&length) {
        return Err(InvalidInstant);
    }
    let (year, mut rest) = digits.split_at(length);
    let year: i64 = year.parse().map_err(|_| InvalidInstant)?;
    let year = if negative { -year } else { year };
    let month = part(&mut rest, "-", 1, 12)?.unwrap_or(1);
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let last = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let day = part(&mut rest, "-", 1, last)?.unwrap_or(1);
    let mut ms = 0;
    if let Some(hour) = part(&mut rest, "T", 0, 23)? {
        ms += hour * 3_600_000;
        if let Some(minute) = part(&mut rest, ":", 0, 59)? {
            ms += minute * 60_000;
            if let Some(second) = part(&mut rest, ":", 0, 59)? {
                ms += second * 1_000 + fraction_ms(&mut rest)?;
            }
        }
        ms -= offset_ms(&mut rest)?;
    }
    if !rest.is_empty() {
        return Err(InvalidInstant);
    }
    let all = i128::from(days(year, month, day)) * i128::from(DAY_MS) + i128::from(ms);
    i64::try_from(all).map_err(|_| InvalidInstant)
}

/// Parses two digits after a mark, within bounds; `None` if the mark is missing.
fn part(rest: &mut &str, mark: &str, least: i64, most: i64) -> Result<Option<i64>, InvalidInstant> {
    let Some(after) = rest.strip_prefix(mark) else {
        return Ok(None);
    };
    let digits = after.get(..2).ok_or(InvalidInstant)?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(InvalidInstant);
    }
    let number: i64 = digits.parse().map_err(|_| InvalidInstant)?;
    *rest = &after[2..];
    if (least..=most).contains(&number) {
        Ok(Some(number))
    } else {
        Err(InvalidInstant)
    }
}

/// Parses the digits after a point. Digits after the milliseconds are ignored.
fn fraction_ms(rest: &mut &str) -> Result<i64, InvalidInstant> {
    let Some(after) = rest.strip_prefix('.') else {
        return Ok(0);
    };
    let length = after.bytes().take_while(u8::is_ascii_digit).count();
    if !(1..=9).contains(&length) {
        return Err(InvalidInstant);
    }
    let padded = format!("{:0<3}", &after[..length]);
    *rest = &after[length..];
    padded[..3].parse().map_err(|_| InvalidInstant)
}

/// Parses `Z`, or the offset from UTC in hours and minutes.
fn offset_ms(rest: &mut &str) -> Result<i64, InvalidInstant> {
    if let Some(after) = rest.strip_prefix('Z') {
        *rest = after;
        return Ok(0);
    }
    let (sign, mark) = match rest.chars().next() {
        Some('+') => (1, "+"),
        Some('-') => (-1, "-"),
        _ => return Ok(0),
    };
    let hour = part(rest, mark, 0, 23)?.ok_or(InvalidInstant)?;
    let minute = part(rest, ":", 0, 59)?.ok_or(InvalidInstant)?;
    Ok(sign * (hour * 3_600_000 + minute * 60_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_far_as_they_are_written() {
        assert_eq!(parse_instant("1970"), Some(0));
        assert_eq!(parse_instant("1970-01-02"), Some(DAY_MS));
        assert_eq!(
            parse_instant("2024-02-29T12:30:15.5Z"),
            Some(1_709_209_815_500)
        );
        assert_eq!(
            parse_instant("2024-02-29T12:30:15.123456789+01:30"),
            Some(1_709_204_415_123)
        );
        assert_eq!(parse_instant("1969-12-31T23:59:59.999-00:00"), Some(-1));
        for wrong in [
            "",
            "24",
            "2023-02-29",
            "2024-13",
            "2024-01-01T24",
            "2024-01-01T00:00Z1",
            "2024-1-1",
            "2024-01-01 00:00",
            "2024-01-01T00:00:00+1",
        ] {
            assert_eq!(parse_instant(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn every_day_is_read_back() {
        let mut day = -800_000;
        while day < 3_000_000 {
            let ms = day * DAY_MS + 12_345_678;
            assert_eq!(
                parse_instant(&format_instant(ms)),
                Some(ms),
                "{}",
                format_instant(ms)
            );
            day += 17;
        }
        assert_eq!(format_instant(-1), "1969-12-31T23:59:59.999-00:00");
        for ms in [i64::MIN, i64::MAX] {
            assert_eq!(
                parse_instant(&format_instant(ms)),
                Some(ms),
                "{}",
                format_instant(ms)
            );
        }
    }
}
