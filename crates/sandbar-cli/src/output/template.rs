use jiff::Timestamp;
use sandbar::Template;
use serde_json::{Value, json};

use crate::output::columns;
use crate::output::record::key_line;
use crate::output::stats::short_size;
use crate::output::time::{distance, rfc3339};

/// The form of decision 0004.
pub(crate) fn templates_json(templates: &[Template]) -> Value {
    json!({"version": 1, "templates": templates.iter().map(one).collect::<Vec<_>>()})
}

/// One template, with the version of the form.
pub(crate) fn template_json(template: &Template) -> Value {
    let mut value = one(template);
    value["version"] = 1.into();
    value
}

fn one(template: &Template) -> Value {
    let Template { id, reference, created_at, size_bytes, label, in_use } = template;
    json!({
        "id": id,
        "reference": reference,
        "created_at": created_at.map(rfc3339),
        "size_bytes": size_bytes,
        "label": label,
        "in_use": in_use,
    })
}

/// Templates as a table for a person.
pub(crate) fn template_table(templates: &[Template], now: Timestamp) -> String {
    let rows = templates.iter().map(|template| {
        [
            template.id.to_string(),
            template.size_bytes.map_or_else(|| "-".to_owned(), short_size),
            template.created_at.map_or_else(|| "-".to_owned(), |at| format!("{} ago", distance(at, now))),
            if template.in_use { "yes" } else { "no" }.to_owned(),
            template.label.clone().unwrap_or_default(),
        ]
    });
    columns(["ID", "SIZE", "CREATED", "IN USE", "LABEL"], &rows.collect::<Vec<_>>())
}

/// A template as lines for a person.
pub(crate) fn template_text(template: &Template, now: Timestamp) -> String {
    let mut text = key_line("id", template.id.as_str());
    text += &key_line("reference", &template.reference);
    text += &key_line("size", &template.size_bytes.map_or_else(|| "unknown".to_owned(), short_size));
    if let Some(at) = template.created_at {
        text += &key_line("created", &format!("{} ({} ago)", rfc3339(at), distance(at, now)));
    }
    if let Some(label) = &template.label {
        text += &key_line("label", label);
    }
    text += &key_line("in use", if template.in_use { "yes" } else { "no" });
    text
}
