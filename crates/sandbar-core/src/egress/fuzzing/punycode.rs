//! Punycode (RFC 3492), as the algorithm stands there: a second reader, for tests alone.

const BASE: u32 = 36;
const T_MIN: u32 = 1;
const T_MAX: u32 = 26;
const SKEW: u32 = 38;
const DAMP: u32 = 700;
const FIRST_BIAS: u32 = 72;
const FIRST_POINT: u32 = 128;
const DIGITS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

fn adapted(delta: u32, points: u32, first: bool) -> u32 {
    let mut delta = delta / if first { DAMP } else { 2 };
    delta += delta / points;
    let mut steps = 0;
    while delta > (BASE - T_MIN) * T_MAX / 2 {
        delta /= BASE - T_MIN;
        steps += BASE;
    }
    steps + (BASE - T_MIN + 1) * delta / (delta + SKEW)
}

fn threshold(k: u32, bias: u32) -> u32 {
    k.saturating_sub(bias).clamp(T_MIN, T_MAX)
}

/// The label without `xn--`.
pub(super) fn encode(label: &[char]) -> String {
    let mut out: String = label.iter().filter(|c| c.is_ascii()).collect();
    let basic = count(out.len());
    if basic > 0 {
        out.push('-');
    }
    let (mut point, mut delta, mut bias, mut done) = (FIRST_POINT, 0, FIRST_BIAS, basic);
    while done < count(label.len()) {
        let next = label.iter().map(|c| u32::from(*c)).filter(|c| *c >= point).min().unwrap_or(point);
        delta += (next - point) * (done + 1);
        point = next;
        for c in label.iter().map(|c| u32::from(*c)) {
            if c < point {
                delta += 1;
            }
            if c == point {
                let (mut rest, mut k) = (delta, BASE);
                while rest >= threshold(k, bias) {
                    let t = threshold(k, bias);
                    out.push(digit(t + (rest - t) % (BASE - t)));
                    rest = (rest - t) / (BASE - t);
                    k += BASE;
                }
                out.push(digit(rest));
                bias = adapted(delta, done + 1, done == basic);
                delta = 0;
                done += 1;
            }
        }
        delta += 1;
        point += 1;
    }
    out
}

/// What a label without `xn--` stands for, if it is one.
pub(super) fn decode(label: &str) -> Option<Vec<char>> {
    let (basic, rest) = label.rsplit_once('-').unwrap_or(("", label));
    let mut out: Vec<char> = basic.chars().collect();
    let mut digits = rest.bytes().peekable();
    let (mut point, mut at, mut bias) = (FIRST_POINT, 0u32, FIRST_BIAS);
    while digits.peek().is_some() {
        let (before, mut weight, mut k) = (at, 1u32, BASE);
        loop {
            let byte = digits.next()?;
            let value = count(DIGITS.iter().position(|digit| *digit == byte)?);
            at = at.checked_add(value.checked_mul(weight)?)?;
            let t = threshold(k, bias);
            if value < t {
                break;
            }
            weight = weight.checked_mul(BASE - t)?;
            k += BASE;
        }
        let points = count(out.len()) + 1;
        bias = adapted(at - before, points, before == 0);
        point = point.checked_add(at / points)?;
        at %= points;
        out.insert(usize::try_from(at).ok()?, char::from_u32(point)?);
        at += 1;
    }
    Some(out)
}

fn digit(value: u32) -> char {
    char::from(DIGITS[usize::try_from(value).unwrap_or(usize::MAX)])
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_coded_as_the_standard_codes_them() {
        for (text, coded) in
            [("bücher", "bcher-kva"), ("münchen", "mnchen-3ya"), ("日本", "wgv71a"), ("аpple", "pple-43d")]
        {
            let label: Vec<char> = text.chars().collect();
            assert_eq!(encode(&label), coded);
            assert_eq!(decode(coded), Some(label));
        }
        assert_eq!(decode("zz!"), None);
        assert_eq!(decode("99999999999"), None);
    }
}
