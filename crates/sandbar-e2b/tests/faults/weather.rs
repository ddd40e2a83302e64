//! What happens on the way.

use std::time::Duration;

use sandbar_http::testing::{Answer, Fault, Then, Where};

pub(crate) struct Weather {
    pub(crate) name: String,
    pub(crate) fault: Box<dyn Fn() -> Fault + Send + Sync>,
    /// To how many requests of an operation it happens; `None`: to all.
    pub(crate) times: Option<usize>,
    pub(crate) expect: Expect,
    /// Whether it lies within a body, which not every answer has.
    pub(crate) is_within_body: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    Success,
    Failure,
    /// A success that is one, or an error that says what is unknown.
    Truth,
}

fn weather(
    name: &str,
    times: Option<usize>,
    expect: Expect,
    fault: impl Fn() -> Fault + Send + Sync + 'static,
) -> Weather {
    let is_within_body = matches!(fault(), Fault::Body(..) | Fault::Split(_) | Fault::Drip(..));
    Weather { name: name.to_owned(), fault: Box::new(fault), times, expect, is_within_body }
}

pub(crate) fn harmless() -> Vec<Weather> {
    vec![
        weather("answers byte by byte", None, Expect::Success, || Fault::Split(1)),
        weather("a slow drip", None, Expect::Success, || Fault::Drip(64, Duration::from_millis(1))),
        weather("a limit that passes", Some(2), Expect::Success, || {
            Fault::Answer(Answer::status(429).with_header("retry-after", "0"))
        }),
    ]
}

pub(crate) fn refusals() -> Vec<Weather> {
    let mut all: Vec<_> = [400, 401, 403, 409, 429]
        .into_iter()
        .map(|status| {
            weather(&format!("{status} of the API"), None, Expect::Failure, move || {
                let refusal = Fault::status(status, "no");
                match refusal {
                    // A server that knows that waiting does not help says so.
                    Fault::Answer(answer) => Fault::Answer(answer.with_header("should-retry", "false")),
                    other => other,
                }
            })
        })
        .collect();
    // Not the API's own words: some proxy on the way has no route.
    all.push(weather("404 of a proxy", None, Expect::Failure, || {
        Fault::Answer(
            Answer::status(404)
                .with_header("content-type", "text/html")
                .with_body("<html>404 page not found</html>"),
        )
    }));
    all.push(weather("a redirection", None, Expect::Failure, || {
        Fault::Answer(Answer::status(302).with_header("location", "http://127.0.0.1:9/"))
    }));
    all
}

pub(crate) fn failures() -> Vec<Weather> {
    let mut all = Vec::new();
    for status in [408, 500, 502, 503] {
        all.push(weather(&format!("{status} before the deed"), None, Expect::Failure, move || {
            Fault::status(status, "later")
        }));
        all.push(weather(&format!("{status} once"), Some(1), Expect::Truth, move || {
            Fault::status(status, "later")
        }));
        all.push(weather(&format!("{status} after the deed"), None, Expect::Failure, move || {
            Fault::AnswerAfter(Answer::status(status).with_body("upstream error"))
        }));
        all.push(weather(&format!("{status} once after the deed"), Some(1), Expect::Truth, move || {
            Fault::AnswerAfter(Answer::status(status).with_body("upstream error"))
        }));
    }
    all
}

pub(crate) fn breaks() -> Vec<Weather> {
    let mut all = vec![
        weather("a reset before the deed", None, Expect::Failure, || Fault::Refuse),
        weather("one reset before the deed", Some(1), Expect::Truth, || Fault::Refuse),
        weather("a reset after the deed", None, Expect::Failure, || Fault::Lose),
        weather("one reset after the deed", Some(1), Expect::Truth, || Fault::Lose),
    ];
    for at in [0, 1] {
        for then in [Then::Reset, Then::Close] {
            all.push(weather(&format!("{then:?} at byte {at}"), None, Expect::Truth, move || {
                Fault::Body(Where::Byte(at), then)
            }));
            all.push(weather(&format!("one {then:?} at byte {at}"), Some(1), Expect::Truth, move || {
                Fault::Body(Where::Byte(at), then)
            }));
        }
    }
    all.push(weather("an end that does not come", None, Expect::Truth, || {
        Fault::Body(Where::End, Then::Close)
    }));
    all
}

pub(crate) fn nonsense() -> Vec<Weather> {
    let rewritten = |name: &str, body: &'static str| {
        weather(name, None, Expect::Truth, move || {
            Fault::rewrite(move |answer| if answer.body.is_empty() { answer } else { answer.with_body(body) })
        })
    };
    vec![
        rewritten("an unknown envelope", r#"{"data":[],"total":0}"#),
        rewritten("a bare null", "null"),
        rewritten("a page of HTML", "<html>welcome</html>"),
        rewritten("half of an object", r#"{"sandboxID":"i"#),
        rewritten("a list of something else", r#"[{"machine":"m1"}]"#),
    ]
}

pub(crate) fn held() -> Vec<Weather> {
    vec![
        weather("a stall before the deed", None, Expect::Success, || Fault::Stall),
        weather("a stall after the deed", None, Expect::Success, || Fault::StallAfter),
    ]
}
