use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Bytes as a JSON value. Text that fits is a string. Else it is an object: `text` or, where it is not UTF-8, `base64`; `bytes`, how many there
/// were; and `cut`, whether that is more than what stands here.
pub(super) fn bounded(bytes: &[u8], max: usize) -> Value {
    let kept = &bytes[..bytes.len().min(max)];
    let cut = kept.len() < bytes.len();
    match std::str::from_utf8(kept) {
        Ok(text) if !cut => json!(text),
        Ok(text) => json!({"text": text, "bytes": bytes.len(), "cut": true}),
        // Cut within a character.
        Err(error) if cut && error.error_len().is_none() => {
            let text = String::from_utf8_lossy(&kept[..error.valid_up_to()]);
            json!({"text": text, "bytes": bytes.len(), "cut": true})
        }
        Err(_) => json!({"base64": STANDARD.encode(kept), "bytes": bytes.len(), "cut": cut}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_or_is_no_text_says_so() {
        assert_eq!(bounded(b"plain", 5), json!("plain"));
        assert_eq!(bounded(b"longer", 5), json!({"text": "longe", "bytes": 6, "cut": true}));
        assert_eq!(bounded("ab\u{e9}".as_bytes(), 3), json!({"text": "ab", "bytes": 4, "cut": true}));
        assert_eq!(bounded(b"\xff\xfe", 5), json!({"base64": "//4=", "bytes": 2, "cut": false}));
        assert_eq!(bounded(b"\xff\xfe", 1), json!({"base64": "/w==", "bytes": 2, "cut": true}));
    }
}
