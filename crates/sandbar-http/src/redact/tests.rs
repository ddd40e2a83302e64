use proptest::prelude::*;

use super::*;

fn redactor(secrets: &[&str]) -> Redactor {
    let secrets: Vec<_> = secrets.iter().map(|secret| Secret::from(*secret)).collect();
    Redactor::new(&secrets)
}

#[test]
fn each_form_of_a_credential_is_taken_out() {
    let secret = "k\"ey/with spaces+1";
    let redactor = redactor(&[secret]);
    for form in forms_of(secret) {
        let shown = redactor.text(&format!("<{form}>"));
        assert_eq!(shown, format!("<{HIDDEN}>"), "{form}");
    }
}

#[test]
fn what_is_named_as_a_credential_is_one() {
    let redactor = redactor(&[]);
    for (text, shown) in [
        (
            r#"{"sandboxID":"i1","envdAccessToken":"abc","n":1}"#,
            r#"{"sandboxID":"i1","envdAccessToken":"[hidden]","n":1}"#,
        ),
        (r#"{"api_key" : "a\"b"}"#, r#"{"api_key" : "[hidden]"}"#),
        (r#"{"trafficAccessToken":"cut off he"#, r#"{"trafficAccessToken":"[hidden]"#),
        (
            "see https://example.com/f?path=a&signature=v1_xyz for",
            "see https://example.com/f?path=a&signature=[hidden] for",
        ),
        (r#"{"message":"{\"accessToken\":\"abc\"}"}"#, r#"{"message":"{\"accessToken\":\"[hidden]"}"#),
        ("Authorization: Bearer abc.def", "Authorization: Bearer [hidden]"),
        (r#"{"key":"not one","message":"no such key"}"#, r#"{"key":"not one","message":"no such key"}"#),
    ] {
        assert_eq!(redactor.text(text), shown);
    }
}

#[test]
fn credentials_that_overlap_leave_no_rest() {
    assert_eq!(redactor(&["abcdef", "defghi"]).text("xabcdefghix"), "x[hidden]x");
    assert_eq!(redactor(&["aaaa"]).text("aaaaaaa"), "[hidden]");
}

#[test]
fn an_excerpt_is_bounded_after_credentials_are_out() {
    let secret = "sentinel-secret";
    let body = format!("{}\r\n\x1b[31m{}", secret.repeat(100), "x".repeat(1000));
    let excerpt = redactor(&[secret]).excerpt(body.as_bytes());
    assert_eq!(excerpt.chars().count(), EXCERPT + 1);
    assert!(!excerpt.contains("sentinel") && !excerpt.contains(char::is_control), "{excerpt}");
}

#[test]
fn what_is_too_short_to_be_a_credential_is_left() {
    assert_eq!(redactor(&["", "abc"]).text("abcabc"), "abcabc");
}

proptest! {
    #[test]
    fn no_known_credential_is_left(
        secrets in prop::collection::vec("[a-c\\\\\" é]{4,8}", 1..4),
        filler in prop::collection::vec("[a-c\\\\\" é&?=:]{0,6}", 5),
        order in prop::collection::vec(0_usize..5, 5),
    ) {
        let mut text = String::new();
        for (piece, index) in filler.iter().zip(&order) {
            text.push_str(piece);
            let secret = &secrets[index % secrets.len()];
            text.push_str(&forms_of(secret)[index % 5]);
        }
        let known: Vec<_> = secrets.iter().map(|secret| Secret::from(secret.as_str())).collect();
        let shown = Redactor::new(&known).text(&text);
        for piece in shown.split(HIDDEN) {
            for secret in &secrets {
                for form in forms_of(secret) {
                    prop_assert!(!piece.contains(&form), "{form:?} in {shown:?}");
                }
            }
        }
    }

    #[test]
    fn any_bytes_have_an_excerpt(body in prop::collection::vec(any::<u8>(), 0..600)) {
        let excerpt = redactor(&["abcd"]).excerpt(&body);
        prop_assert!(excerpt.chars().count() <= EXCERPT + 1);
        prop_assert!(!excerpt.contains(char::is_control));
    }
}
